// Passes that also compute moments, on several threads, with the bits of one thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "kernel/parts.h"
#include "kernel/vector_moments.h"
#include "thinwire/moments.h"

namespace thinwire::kernel {

// reduce(begin, end, chunks) returns the moments of a part if `chunks` is null, and otherwise
// writes those of each of its chunks there.
template <class Reduce>
Moments moments_of_parts(size_t count, const Reduce& reduce) noexcept {
  static_assert(kPartUnit % kSumChunk == 0);
  std::unique_ptr<Moments[]> chunks;
  const size_t number = (count + kSumChunk - 1) / kSumChunk;
  if (codec_threads() > 1 && count >= kLeastParallel)
    chunks.reset(new (std::nothrow) Moments[number]);
  if (chunks == nullptr) return reduce(size_t{0}, count, static_cast<Moments*>(nullptr));
  parallel_for(count, kPartUnit, [&](size_t begin, size_t end) {
    reduce(begin, end, chunks.get() + begin / kSumChunk);
  });
  Moments total;
  for (size_t i = 0; i < number; ++i) {
    total.abs_sum += chunks[i].abs_sum;
    total.square_sum += chunks[i].square_sum;
    total.abs_max = std::max(total.abs_max, chunks[i].abs_max);
  }
  total.finite = std::isfinite(total.abs_sum);
  return total;
}

}  // namespace thinwire::kernel
