// Selection and packed positions on a device, with the bits of kernel/select.h and kernel/position_code.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; bytes may lie at any address. Everything is queued and
// returns at once.

constexpr size_t tiles_of(size_t count) noexcept { return (count + 1023) / 1024; }

// Writes to positions and kept the first `most` values with |x| > threshold, and to *found how many there are, perhaps
// more. `tiles` has room for tiles_of(count). A rest that is not null receives the values, with zeros where one was kept;
// it may be `values`.
void select_above(Launcher& on, const float* values, size_t count, float threshold, size_t most,
                  uint32_t* positions, float* kept, float* rest, uint64_t* tiles, uint64_t* found);

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
