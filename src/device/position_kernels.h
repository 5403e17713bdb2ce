// Packed positions on a device, with the bytes of kernel/position_code.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"
#include "device/sums_before.h"
#include "kernel/position_code.h"

namespace thinwire::device {

// Pointers are to memory that the launcher's kernels reach; a code may lie at any address.
// Everything is queued and returns at once.

constexpr size_t position_blocks(size_t kept) noexcept {
  return (kept + kernel::kPositionBlock - 1) / kernel::kPositionBlock;
}

// kernel::pack_positions, in two steps, because the sizes of the first are arguments of the second.
// Plan: the parameters, at the begin of the code, and for each block the offset of its low bits and
// of its high bits; sizes receives the bytes of all low bits and the number of all high bits.
// Offsets have room for sum_room of the blocks.
void plan_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                    uint64_t* low_offsets, uint64_t* high_offsets, uint64_t* sizes);

// Writes low and high bits behind the parameters. `words`, (high_bits + 31) / 32 of them, are zero.
void write_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                     const uint64_t* low_offsets, const uint64_t* high_offsets, uint64_t low_bytes,
                     uint64_t high_bits, uint32_t* words);

// The positions of a code of `size` bytes. REQUIRES: kernel::PositionReader took the code; `places`
// are those of its position_blocks(kept) blocks.
void unpack_positions(Launcher& on, const std::byte* code, size_t size, size_t kept,
                      const kernel::PositionPlace* places, uint32_t* positions);

}  // namespace thinwire::device
