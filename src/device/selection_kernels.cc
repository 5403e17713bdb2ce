// Kernels of sparsifiers: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/selection_kernels.h"

#include <bit>

#include "device/work_grid.h"

namespace thinwire::device {
namespace {

constexpr Grid kOneWarp{.blocks = 1, .threads = 32};

}  // namespace

void select_above(Launcher& on, const float* values, size_t count, float threshold, size_t most,
                  uint32_t* positions, float* kept, float* rest, uint64_t* tiles, uint64_t* found) {
  const uint32_t key = std::bit_cast<uint32_t>(threshold) & 0x7fffffff;  // -0 is 0
  const Grid grid = work_grid(32 * tiles_of(count));
  launch(on, "selection/count_tiles", grid, values, uint64_t{count}, key, tiles);
  launch(on, "selection/sum_before", kOneWarp, tiles, uint64_t{tiles_of(count)}, found);
  launch(on, "selection/write_selected", grid, values, uint64_t{count}, key,
         static_cast<const uint64_t*>(tiles), uint64_t{most}, positions, kept, rest);
}

void plan_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                    uint64_t* low_offsets, uint64_t* high_offsets, uint64_t* sizes) {
  const uint64_t blocks = position_blocks(kept);
  launch(on, "selection/choose_parameters", work_grid(32 * blocks), positions, uint64_t{kept}, code,
         low_offsets, high_offsets);
  launch(on, "selection/sum_before", kOneWarp, low_offsets, blocks, sizes);
  launch(on, "selection/sum_before", kOneWarp, high_offsets, blocks, sizes + 1);
}

void write_positions(Launcher& on, const uint32_t* positions, size_t kept, std::byte* code,
                     const uint64_t* low_offsets, const uint64_t* high_offsets, uint64_t low_bytes,
                     uint64_t high_bits, uint32_t* words) {
  const size_t blocks = position_blocks(kept);
  const Grid grid = work_grid(32 * blocks);
  std::byte* const low = code + blocks;
  launch(on, "selection/write_low_bits", grid, positions, uint64_t{kept}, code, low_offsets, low);
  launch(on, "selection/write_high_bits", grid, positions, uint64_t{kept}, code, high_offsets,
         words);
  launch(on, "selection/copy_bits", work_grid(high_bits / 8 + 1), words, high_bits,
         low + low_bytes);
}

}  // namespace thinwire::device
