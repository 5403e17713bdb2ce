// Range: values of a stream; shard_range(): those that one rank owns in one piece.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace thinwire {

// Values [begin, begin + count).
struct Range {
  size_t begin = 0;
  size_t count = 0;
};

// Shard `index` of a stream of `count` values: of its blocks, the last of which may be short, those
// from floor(blocks x index / n) to floor(blocks x (index + 1) / n).
Range shard_range(size_t count, size_t block, size_t n, size_t index) noexcept;

}  // namespace thinwire
