// Tests of the compressed all-gather: every rank has the values that every payload decodes to.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"
#include "thinwire/frame.h"
#include "thinwire/shard_gather.h"

namespace thinwire::testing {
namespace {

class ShardGathering : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardGathering, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// Rank 1 has nothing; the others a matrix and a vector each, of their own lengths.
std::vector<std::vector<TensorSpec>> shards_of(int ranks) {
  std::vector<std::vector<TensorSpec>> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.emplace_back();
    if (rank == 1) continue;
    const auto rows = static_cast<uint64_t>(3 + rank);
    shards.back().push_back({"w" + std::to_string(rank), {rows, 70}, TensorKind::kLinear});
    shards.back().push_back({"b" + std::to_string(rank), {rows}, TensorKind::kBias});
  }
  return shards;
}

Values shard_of(const std::vector<TensorSpec>& parts, int rank, uint64_t step) {
  Values all;
  for (const TensorSpec& part : parts) {
    const Values values = gradient(part, rank, step);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_P(ShardGathering, EveryRankHasWhatAllPayloadsDecodeTo) {
  for (const std::string codec : {"fp32", "fp16", "bf16", "int8", "qsgd"})
    on_all([&](Group& group) {
      const auto shards = shards_of(group.size());
      const auto made = make_codec(codec).value().codec;
      const auto gathering = make_shard_gather(group, shards, {.codec = codec, .seed = 5});
      Values all(gathering->begin_of(group.size()));
      for (uint64_t step = 0; step < 3; ++step) {
        const auto own = static_cast<size_t>(group.rank());
        const Values mine = shard_of(shards[own], group.rank(), step);
        EXPECT_FALSE(gathering->gather(step, mine, all).skipped);
        Values expected;
        for (int rank = 0; rank < group.size(); ++rank)
          for (const TensorSpec& part : shards[static_cast<size_t>(rank)]) {
            const StreamSpec spec = single_tensor(part);
            const Values given = gradient(part, rank, step);
            const Call call{.seed = 5,
                            .step = step,
                            .salt = static_cast<uint64_t>(rank),
                            .ranks = static_cast<uint64_t>(group.size())};
            std::vector<std::byte> bytes(made->max_encoded_size(spec));
            bytes.resize(made->make_encoder(spec)->encode({.values = given}, call, bytes, {}).size);
            Values decoded(given.size(), -0.0f);
            made->make_decoder(spec)->decode_add(bytes, 1.0f, decoded).or_throw();
            expected.insert(expected.end(), decoded.begin(), decoded.end());
          }
        EXPECT_TRUE(same_bits(all, expected)) << codec << ", step " << step;
      }
    });
}

TEST_P(ShardGathering, SendsTheOwnShardToEveryOther) {
  on_all([](Group& group) {
    const auto n = static_cast<uint64_t>(group.size());
    const auto shards = shards_of(group.size());
    const auto gathering = make_shard_gather(group, shards, {.codec = "fp16"});
    const Values mine = shard_of(shards[static_cast<size_t>(group.rank())], group.rank(), 0);
    Values all(gathering->begin_of(group.size()));
    const ShardGatherReport report = gathering->gather(0, mine, all);
    uint64_t agreement = 0;
    while (uint64_t{1} << agreement / 16 < n) agreement += 16;
    const uint64_t frames = shards[static_cast<size_t>(group.rank())].size() * kFrameHeaderSize;
    EXPECT_EQ(report.payload_bytes, 2 * mine.size());
    EXPECT_EQ(report.sent_bytes, (n - 1) * (8 + frames + 2 * mine.size()) + agreement);
  });
}

TEST_P(ShardGathering, AValueThatIsNotFiniteSkipsTheStepOnAllRanks) {
  on_all([](Group& group) {
    const auto shards = shards_of(group.size());
    const auto gathering = make_shard_gather(group, shards, {.codec = "int8"});
    Values mine = shard_of(shards[static_cast<size_t>(group.rank())], group.rank(), 0);
    Values all(gathering->begin_of(group.size()));
    if (group.rank() == 0) mine.back() = std::numeric_limits<float>::infinity();
    const ShardGatherReport report = gathering->gather(0, mine, all);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(describe(report.fault), "stream 'b0' of rank 0 has a NaN or Inf");
    if (group.rank() == 0) mine.back() = 1;
    EXPECT_FALSE(gathering->gather(1, mine, all).skipped);
  });
}

TEST_P(ShardGathering, MistakesAreRefusedOnAllRanks) {
  using ::testing::HasSubstr;
  on_all([](Group& group) {
    const auto why = [&](const std::vector<std::vector<TensorSpec>>& shards,
                         const std::string& codec) {
      try {
        make_shard_gather(group, shards, {.codec = codec});
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_THAT(why(shards_of(group.size()), "topk"),
                HasSubstr("codec 'topk' does not send every value"));
    EXPECT_THAT(why(shards_of(group.size() + 1), "fp32"), HasSubstr("shards for"));
    if (group.size() > 1) {
      EXPECT_THAT(why(shards_of(group.size()), group.rank() == 0 ? "fp16" : "bf16"),
                  HasSubstr("ranks do not agree"));
    }
    const auto gathering = make_shard_gather(group, shards_of(group.size()), {});
    Values all(gathering->begin_of(group.size()));
    EXPECT_THROW(gathering->gather(0, Values(5), all), Error);
  });
}

}  // namespace
}  // namespace thinwire::testing
