// Selection, the statistics that it goes by, and packed positions on a device, with the bits of kernel/select.h,
// kernel/kth_magnitude.h, kernel/value_sample.h, kernel/tail_moments.h and kernel/position_code.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "kernel/tail_moments.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; bytes may lie at any address. Everything is queued and
// returns at once.

constexpr size_t tiles_of(size_t count) noexcept { return (count + 1023) / 1024; }

// Selection in two steps, because how many there are may decide what is done. Count: how many values have |x| > threshold;
// `tiles` has room for tiles_of(count).
void count_above(Launcher& on, const float* values, size_t count, float threshold, uint64_t* tiles,
                 uint64_t* found);

// With these tiles, the positions and values of the first `most` of them. A rest that is not null receives the values, with
// zeros where one was kept; it may be `values`.
void write_above(Launcher& on, const float* values, size_t count, float threshold, size_t most,
                 const uint64_t* tiles, uint32_t* positions, float* kept, float* rest);

// Both, without a limit, and with the first `ties` of the values with |x| = threshold. Twice as many tiles; `found` has
// two entries: how many are above, and how many are equal.
void select_top(Launcher& on, const float* values, size_t count, float threshold, size_t ties,
                uint32_t* positions, float* kept, float* rest, uint64_t* tiles, uint64_t* found);

// kernel::kth_magnitude.
struct KthState {
  uint32_t bits, unused;
  uint64_t above;

  float magnitude() const noexcept { return std::bit_cast<float>(bits); }
};
constexpr size_t kKthBins = 2048;
void find_kth(Launcher& on, const float* values, size_t count, size_t k, uint32_t* bins,
              KthState* kth);

// kernel::sample_values.
void sample_values(Launcher& on, const float* values, size_t count, uint32_t phase, float* sample,
                   size_t size);

// kernel::tail_moments; the total is the first of tail_entries(count) entries once all is done.
struct TailEntry {
  double sum, square_sum;
  uint64_t count;
  uint32_t smallest, unused;
};
constexpr size_t tail_entries(size_t count) noexcept {
  return 1 + (count + kernel::kTailChunk - 1) / kernel::kTailChunk;
}
void tail_moments(Launcher& on, const float* values, size_t count, float threshold, float largest,
                  TailEntry* entries);
kernel::TailMoments tail_of(const TailEntry& total, float largest) noexcept;

// out[positions[k]] += weight * values[k]; rest[positions[k]] = values[k]. REQUIRES: positions that differ.
void add_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept, float weight,
            float* out);
void put_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept, float* rest);

constexpr size_t position_blocks(size_t kept) noexcept { return (kept + 511) / 512; }

// kernel::pack_positions, in two steps, because the sizes of the first are arguments of the second. Plan: the parameters,
// at the begin of the code, and for each block the offset of its low bits and of its high bits; sizes receives the bytes
// of all low bits and the number of all high bits.
void plan_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                    uint64_t* low_offsets, uint64_t* high_offsets, uint64_t* sizes);

// Writes low and high bits behind the parameters. `words`, (high_bits + 31) / 32 of them, are zero.
void write_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                     const uint64_t* low_offsets, const uint64_t* high_offsets, uint64_t low_bytes,
                     uint64_t high_bits, uint32_t* words);

}  // namespace thinwire::device
