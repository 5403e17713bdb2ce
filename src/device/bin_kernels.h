// AdaComp's bins on a device, with the bits of kernel/bin_codes.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "device/sums_before.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; codes may lie at any address.
// Everything is queued and returns at once.

constexpr size_t bins_of(size_t count, size_t bin) noexcept { return (count + bin - 1) / bin; }

struct BinChoice {
  float max;
  uint32_t kept;
};
struct BinTotal {
  double max_sum;
  uint64_t kept,
      codes;  // values that are sent, and codes, of which a bin without any takes one, too
};

// Room for the total of all bins and, behind it, one for each 8,192.
constexpr size_t bin_totals(size_t bins) noexcept { return 1 + (bins + 8191) / 8192; }

// kernel::select_bins, in two steps, because the scale follows from the first. Choose: of each bin
// what it sends and where its codes begin, and the total of all in *totals. `totals` has room for
// bin_totals, `offsets` for sum_room(bins).
void choose_bins(Launcher& on, const float* values, const float* fresh, size_t count, float factor,
                 size_t bin, BinChoice* choices, uint64_t* offsets, BinTotal* totals);

// Writes the codes. A rest that is not null receives the values minus what they stand for; it may
// be `values`.
void write_bins(Launcher& on, const float* values, const float* fresh, size_t count, float factor,
                size_t bin, const BinChoice* choices, const uint64_t* offsets, float scale,
                std::byte* codes, float* rest);

constexpr size_t code_tiles(size_t codes) noexcept { return (codes + 1023) / 1024; }
constexpr size_t code_room(size_t codes) noexcept { return 1 + sum_room(code_tiles(codes)); }

// kernel::add_bins of the first `size` bytes. `tiles` has room for code_room of as many codes.
// *used becomes the number of codes that all bins took, and stays as it is where they are cut off;
// *bad becomes 1 where codes break a rule.
void add_bins(Launcher& on, const std::byte* codes, size_t size, size_t bin, float scale,
              uint64_t* tiles, float* out, size_t count, uint64_t* used, uint32_t* bad);

}  // namespace thinwire::device
