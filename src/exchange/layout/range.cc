// Cuts a stream into shards, at borders of blocks.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/range.h"

#include <algorithm>

namespace thinwire {

Range shard_range(size_t count, size_t block, size_t n, size_t index) noexcept {
  const size_t blocks = (count + block - 1) / block;
  const size_t begin = std::min(count, blocks * index / n * block);
  const size_t end = std::min(count, blocks * (index + 1) / n * block);
  return {begin, end - begin};
}

}  // namespace thinwire
