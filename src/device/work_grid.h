// How many threads a kernel is given. Kernels go on in strides of all threads, so any number gives the same result.
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

}  // namespace thinwire::device
