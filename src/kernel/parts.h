// Cuts a vector into parts that a kernel may process on several threads (core/parallel_for.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "core/parallel_for.h"

namespace thinwire::kernel {

// Parts are of whole chunks of sums, and of whole blocks where values are coded in blocks.
inline constexpr size_t kPartUnit = 8192;  // values
constexpr size_t part_unit(size_t block) noexcept {
  return block >= kPartUnit ? block : (kPartUnit + block - 1) / block * block;
}

// Where a part of what may be left out begins.
inline float* part_of(std::span<float> rest, size_t begin) noexcept {
  return rest.empty() ? nullptr : rest.data() + begin;
}

// Whether take(begin, end) is true of all parts. All are taken in any case.
template <class Take>
bool all_parts(size_t count, size_t unit, const Take& take) noexcept {
  std::atomic<bool> good{true};
  parallel_for(count, unit, [&](size_t begin, size_t end) {
    if (!take(begin, end)) good.store(false, std::memory_order_relaxed);
  });
  return good.load(std::memory_order_relaxed);
}

}  // namespace thinwire::kernel
