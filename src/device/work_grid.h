// How many threads a kernel is given. Kernels go on in strides of all threads, so any number gives
// the same result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/launcher.h"

namespace thinwire::device {

// A thread for each of `threads` pieces of work, up to 2 million: more than a GPU holds at once.
inline Grid work_grid(size_t threads) noexcept {
  constexpr size_t kBlock = 256, kMostBlocks = 8192;
  const size_t blocks = std::clamp<size_t>((threads + kBlock - 1) / kBlock, 1, kMostBlocks);
  return {.blocks = static_cast<uint32_t>(blocks), .threads = kBlock};
}

// Half a warp for each chunk of a sum. Small blocks, so that a million values, 123 chunks, reach
// every multiprocessor.
inline Grid sum_grid(size_t chunks) noexcept {
  constexpr size_t kBlock = 64, kMostBlocks = 32768;  // SUM_KERNEL in the texts
  const size_t blocks = std::clamp<size_t>((16 * chunks + kBlock - 1) / kBlock, 1, kMostBlocks);
  return {.blocks = static_cast<uint32_t>(blocks), .threads = kBlock};
}

// Of kernels whose threads meet within a block; kFold of them in the texts. They go on in strides
// of all blocks.
inline constexpr Grid kOneBlock{.blocks = 1, .threads = 256};
inline Grid block_grid(size_t blocks) noexcept { return work_grid(blocks * kOneBlock.threads); }

}  // namespace thinwire::device
