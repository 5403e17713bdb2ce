// Kernels of packed positions: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/position_kernels.h"

#include "device/sums_before.h"
#include "device/work_grid.h"

namespace thinwire::device {

void plan_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                    uint64_t* low_offsets, uint64_t* high_offsets, uint64_t* sizes) {
  const uint64_t blocks = position_blocks(kept);
  launch(on, "positions/choose_parameters", work_grid(32 * blocks), positions, uint64_t{kept}, code,
         low_offsets, high_offsets);
  sum_before(on, low_offsets, blocks, sizes);
  sum_before(on, high_offsets, blocks, sizes + 1);
}

void write_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                     const uint64_t* low_offsets, const uint64_t* high_offsets, uint64_t low_bytes,
                     uint64_t high_bits, uint32_t* words) {
  const size_t blocks = position_blocks(kept);
  const Grid grid = work_grid(32 * blocks);
  std::byte* const low = code + blocks;
  launch(on, "positions/write_low_bits", grid, positions, uint64_t{kept}, code, low_offsets, low);
  launch(on, "positions/write_high_bits", grid, positions, uint64_t{kept}, code, high_offsets,
         words);
  launch(on, "positions/copy_bits", work_grid(high_bits / 8 + 1), words, high_bits,
         low + low_bytes);
}

void unpack_positions(Launcher& on, const std::byte* code, size_t size, size_t kept,
                      const kernel::PositionPlace* places, uint32_t* positions) {
  static_assert(sizeof(kernel::PositionPlace) == 24);  // as the text has it
  launch(on, "positions/unpack_positions", work_grid(32 * position_blocks(kept)), code,
         uint64_t{size}, uint64_t{kept}, places, positions);
}

}  // namespace thinwire::device
