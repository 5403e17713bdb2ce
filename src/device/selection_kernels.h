// Selection, and the statistics that it goes by, on a device, with the bits of kernel/select.h,
// kernel/kth_magnitude.h, kernel/value_sample.h and kernel/tail_moments.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "device/sums_before.h"
#include "kernel/log_total.h"
#include "kernel/tail_moments.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach. Everything is queued and returns at
// once.

constexpr size_t tiles_of(size_t count) noexcept { return (count + 1023) / 1024; }
constexpr size_t tile_room(size_t count) noexcept { return sum_room(tiles_of(count)); }

// Selection in two steps, because how many there are may decide what is done. Count: how many
// values have |x| > threshold; `tiles` has room for tile_room(count).
void count_above(Launcher& on, const float* values, size_t count, float threshold, uint64_t* tiles,
                 uint64_t* found);

// With these tiles, the values of the first `most` of them and, unless null, their positions. A
// rest that is not null receives the values, with zeros where one was kept; it may be `values`.
void write_above(Launcher& on, const float* values, size_t count, float threshold, size_t most,
                 const uint64_t* tiles, uint32_t* positions, float* kept, float* rest);

// Both, without a limit, and with the first `ties` of the values with |x| = threshold. Twice as
// many tiles; `found` has two entries: how many are above, and how many are equal.
void select_top(Launcher& on, const float* values, size_t count, float threshold, size_t ties,
                uint32_t* positions, float* kept, float* rest, uint64_t* tiles, uint64_t* found);

// kernel::kth_magnitude.
struct KthState {
  uint32_t bits, unused;
  uint64_t above;

  float magnitude() const noexcept { return std::bit_cast<float>(bits); }
};
inline constexpr size_t kKthBins = 2048;
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

// kernel::log_sum, but for the logarithms: chunks for kernel::LogTotal. REQUIRES: count a multiple
// of kernel::kLogLanes.
constexpr size_t log_chunks_of(size_t count) noexcept {
  return (count + kernel::kTailChunk - 1) / kernel::kTailChunk;
}
void log_chunks(Launcher& on, const float* values, size_t count, double guard, double unit,
                kernel::LogChunk* chunks);

// out[positions[k]] += weight * values[k]; rest[positions[k]] = values[k]. REQUIRES: positions that
// differ.
void add_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept, float weight,
            float* out);
void put_at(Launcher& on, const uint32_t* positions, const float* values, size_t kept, float* rest);

}  // namespace thinwire::device
