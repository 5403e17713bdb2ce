// Tests of damaged shards: all ranks skip the step, and name the owner.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/shard_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "comm/tags.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<TensorSpec>> kShards = {{{"a", {300}, TensorKind::kLinear}},
                                                      {{"b", {200}, TensorKind::kLinear}},
                                                      {{"c", {100}, TensorKind::kLinear}}};

// Header, first value, last value.
TEST(ShardGather, ADamagedShardIsNoticedByAll) {
  for (const size_t at : {size_t{9}, size_t{50}, size_t{400}})
    run_local(3, [&](Group& group) {
      bool damages = group.rank() == 2;
      TamperingGroup tampering(group, [&](int from, int /*tag*/, std::span<std::byte> message) {
        if (from != 1 || message.size() < 500 || !std::exchange(damages, false)) return;
        message[at] ^= std::byte{16};
      });
      const auto gathering = make_shard_gather(tampering, kShards, {});
      const Values mine = gradient(kShards[static_cast<size_t>(group.rank())][0], group.rank(), 0);
      Values all(600);
      const ShardGatherReport report = gathering->gather(0, mine, all);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(describe(report.fault), "stream 'b' of rank 1 arrived corrupt");
      EXPECT_FALSE(gathering->gather(1, mine, all).skipped);
    });
}

// Another step's frame has the right checksum.
TEST(ShardGather, ADamagedWordOfTheAgreementEndsItOnAllRanks) {
  run_local(3, [&](Group& group) {
    bool damages = group.rank() == 2;
    TamperingGroup tampering(group, [&](int /*from*/, int tag, std::span<std::byte> message) {
      if (tag == kMaximumTag && std::exchange(damages, false)) message[3] ^= std::byte{4};
    });
    const auto gathering = make_shard_gather(tampering, kShards, {});
    const Values mine = gradient(kShards[static_cast<size_t>(group.rank())][0], group.rank(), 0);
    Values all(600);
    EXPECT_THAT(error_of([&] {
                  for (uint64_t step = 0; step < 3; ++step) gathering->gather(step, mine, all);
                }),
                HasSubstr("the word of rank 1 arrived corrupt"));
  });
}

TEST(ShardGather, AShardOfAnotherStepIsNoticedByAll) {
  run_local(3, [&](Group& group) {
    const auto gathering = make_shard_gather(group, kShards, {});
    const Values mine = gradient(kShards[static_cast<size_t>(group.rank())][0], group.rank(), 0);
    Values all(600);
    const ShardGatherReport report = gathering->gather(group.rank() == 1 ? 7 : 8, mine, all);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
  });
}

}  // namespace
}  // namespace thinwire::testing
