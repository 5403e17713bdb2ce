// Tests of owners' words in scatter-reduce with shards: words that are damaged or late.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

const std::vector<TensorSpec> kModel = {{"w", {1600}, TensorKind::kLinear}};

// 80 chunks for each of 2 owners, of which 32 may be on their way.
ExchangeOptions many_chunks() {
  return {
      .codec = "fp32", .method = "scatter-reduce", .results = Results::kShard, .chunk_values = 10};
}

TEST(ShardResults, ADamagedWordSkipsTheStepAndNamesItsOwner) {
  for (const size_t at : {size_t{0}, size_t{15}})
    run_local(2, [&](Group& group) {
      int words = 0;
      TamperingGroup tampering(group, [&](int /*from*/, int tag, std::span<std::byte> message) {
        if (group.rank() == 1 && tag == 1 && ++words == 2) message[at] ^= std::byte{1};
      });
      Side side(tampering, kModel, many_chunks());
      const StepReport report = side.step(0);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
      EXPECT_EQ(report.fault.rank, 0);
      EXPECT_FALSE(side.step(1).skipped);
    });
}

}  // namespace
}  // namespace thinwire::testing
