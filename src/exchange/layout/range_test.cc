// Tests of shard_range: shards cover a stream, one after another.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/range.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace thinwire {
namespace {

TEST(ShardRange, ShardsFollowEachOtherAtBlockBorders) {
  for (const size_t count : {0, 1, 23, 24, 25, 100, 1000, 100003})
    for (const size_t block : {1, 8, 24, 256})
      for (const size_t n : {1, 2, 3, 7, 16}) {
        size_t at = 0, least = count, most = 0;
        for (size_t j = 0; j < n; ++j) {
          const Range shard = shard_range(count, block, n, j);
          EXPECT_EQ(shard.begin, at);
          EXPECT_TRUE(at % block == 0 || at == count);
          at += shard.count;
          least = std::min(least, (shard.count + block - 1) / block);
          most = std::max(most, (shard.count + block - 1) / block);
        }
        EXPECT_EQ(at, count);
        EXPECT_LE(most - std::min(least, most), 1u);
      }
}

}  // namespace
}  // namespace thinwire
