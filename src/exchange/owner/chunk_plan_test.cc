// Tests of ChunkPlan: shards cover every stream, chunks every shard, in order and within limits.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/chunk_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "exchange/testing/agreeing_codecs.h"
#include "exchange/testing/exchange_testing.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

using thinwire::testing::kTestBlock;

// Streams of a plan at work, without an exchange around them.
struct Fixture {
  Fixture(const std::vector<TensorSpec>& tensors, size_t bucket_values) {
    thinwire::testing::all_codecs();
    const ExchangeOptions options{.codec = "test-nearest"};
    const Terms terms = thinwire::testing::terms_of(options);
    plan =
        make_plan(tensors, {.plain_kinds = options.dense_kinds, .bucket_bytes = 4 * bucket_values});
    for (size_t i = 0; i < plan.streams.size(); ++i)
      streams.push_back(std::make_unique<ActiveStream>(plan.streams[i], i, terms, options, store));
  }

  Store store;
  Plan plan;
  Streams streams;
};

const std::vector<TensorSpec> kModel = {{"a", {1000}, TensorKind::kLinear},
                                        {"a.bias", {10}, TensorKind::kBias},
                                        {"none", {0}, TensorKind::kLinear},
                                        {"b", {77}, TensorKind::kLinear},
                                        {"c", {5000}, TensorKind::kOther}};

TEST(ChunkPlan, ChunksHoldEveryValueOnceInOrder) {
  for (const size_t bucket_values : {1, 1000, 1000000})
    for (const size_t n : {1, 2, 3, 16})
      for (const size_t chunk_values : {1, 24, 100, 5000}) {
        Fixture f(kModel, bucket_values);
        const ChunkPlan plan(f.streams, f.plan.buckets, n, chunk_values);
        std::vector<std::vector<size_t>> seen;
        for (const auto& stream : f.streams) seen.emplace_back(stream->spec().count());
        for (size_t owner = 0; owner < n; ++owner) {
          const Route& route = plan.route(owner);
          ASSERT_EQ(route.ends.size(), f.plan.buckets.size());
          EXPECT_EQ(route.ends.back(), route.chunks.size());
          size_t bucket = 0;
          for (size_t i = 0; i < route.chunks.size(); ++i) {
            const Chunk& chunk = route.chunks[i];
            while (route.ends[bucket] <= i) ++bucket;
            EXPECT_EQ(chunk.bucket, bucket);
            EXPECT_LE(chunk.count, std::max(chunk_values, kTestBlock));
            EXPECT_LE(chunk.count, plan.max_count());
            EXPECT_LE(chunk.size, plan.max_size());
            EXPECT_LE(chunk.parts.size(), plan.max_parts());
            size_t count = 0, size = 0;
            for (const ChunkPart& part : chunk.parts) {
              EXPECT_EQ(part.offset, size);
              EXPECT_GT(part.range.count, 0u);
              const Range shard = plan.shard(*part.stream, owner);
              EXPECT_GE(part.range.begin, shard.begin);
              EXPECT_LE(part.range.begin + part.range.count, shard.begin + shard.count);
              EXPECT_EQ(part.range.begin % part.stream->codec().info().block, 0u);
              for (size_t v = 0; v < part.range.count; ++v)
                ++seen[part.stream->index()][part.range.begin + v];
              count += part.range.count;
              size += part.coder->room;
            }
            EXPECT_EQ(chunk.count, count);
            EXPECT_EQ(chunk.size, size);
          }
        }
        for (const auto& values : seen)
          EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](size_t s) { return s == 1; }));
      }
}

// Whatever the codec, and whatever is in the message already.
TEST(ChunkPlan, MessagesStayBelowTheLimit) {
  Fixture f({{"bias", {30000}, TensorKind::kBias}, {"w", {200000}, TensorKind::kLinear}}, 1 << 30);
  for (const size_t n : {1, 3}) {
    const ChunkPlan plan(f.streams, f.plan.buckets, n, 1 << 20);
    EXPECT_LE(plan.max_size(), kMaxChunkSize);
    EXPECT_GT(plan.max_size(), kMaxChunkSize - 1000);
  }
}

TEST(ChunkPlan, SmallTensorsShareAMessage) {
  Fixture f(kModel, 1000000);
  const ChunkPlan plan(f.streams, f.plan.buckets, 1, 1 << 15);
  ASSERT_EQ(plan.route(0).chunks.size(), 1u);
  EXPECT_EQ(plan.route(0).chunks[0].parts.size(), 4u);  // of nothing there is no frame
  EXPECT_EQ(plan.route(0).chunks[0].count, 6087u);
}

TEST(ChunkPlan, TensorsOfOneBlockAreSpreadOverTheOwners) {
  std::vector<TensorSpec> model;
  for (int i = 0; i < 12; ++i)
    model.push_back({"w" + std::to_string(i), {kTestBlock}, TensorKind::kLinear});
  Fixture f(model, 50);
  const ChunkPlan plan(f.streams, f.plan.buckets, 4, 1 << 15);
  for (size_t owner = 0; owner < 4; ++owner) {
    size_t count = 0;
    for (const Chunk& chunk : plan.route(owner).chunks) count += chunk.count;
    EXPECT_EQ(count, 3 * kTestBlock);
  }
}

// Who owns what does not hang on buckets or chunks: memories stay where they are.
TEST(ChunkPlan, OwnersDoNotChangeWithBuckets) {
  Fixture one(kModel, 1000000), many(kModel, 1);
  const ChunkPlan a(one.streams, one.plan.buckets, 3, 100);
  const ChunkPlan b(many.streams, many.plan.buckets, 3, 7000);
  for (const auto& stream : one.streams)
    for (const auto& other : many.streams)
      if (stream->spec().name == other->spec().name && !stream->spec().name.starts_with("dense:"))
        for (size_t owner = 0; owner < 3; ++owner) {
          EXPECT_EQ(a.shard(*stream, owner).begin, b.shard(*other, owner).begin);
          EXPECT_EQ(a.shard(*stream, owner).count, b.shard(*other, owner).count);
        }
}

}  // namespace
}  // namespace thinwire
