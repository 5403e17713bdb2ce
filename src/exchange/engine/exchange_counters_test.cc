// Tests of a step's report: bytes as in docs/collectives.md, kept values, norms and times.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "exchange/testing/exchange_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

std::vector<StepReport> reports(int ranks, const std::vector<TensorSpec>& model,
                                const ExchangeOptions& options) {
  std::vector<StepReport> all(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    Side side(group, model, options);
    side.step(0);
    all[static_cast<size_t>(group.rank())] = side.step(1);
  });
  return all;
}

// The round in which ranks agree that the step counts: a word and its checksum, ceil(log2 n) times.
uint64_t agreement_bytes(uint64_t n) {
  uint64_t rounds = 0;
  while (uint64_t{1} << rounds < n) ++rounds;
  return 16 * rounds;
}

class Bytes : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Bytes, ::testing::Range(uint64_t{1}, uint64_t{17}));

TEST_P(Bytes, DenseSendsTwiceItsPayloadButForItsOwnShard) {
  const uint64_t n = GetParam();
  const uint64_t count = 720 * n;
  for (const uint64_t buckets : {1, 2, 5})
    for (const uint64_t width : {4, 2})
      for (const StepReport& report :
           reports(static_cast<int>(n), {{"w", {count}, TensorKind::kLinear}},
                   {.codec = width == 4 ? "fp32" : "fp16",
                   .method = "dense",
                   .bucket_bytes = 4 * count / buckets})) {
        EXPECT_EQ(report.dense_bytes, 2 * (n - 1) * 4 * count / n);
        const uint64_t expected =
            2 * (n - 1) * (width * count / n + buckets * kFrameHeaderSize) + agreement_bytes(n);
        EXPECT_EQ(report.sent_bytes, expected);
        EXPECT_EQ(report.received_bytes, expected);
        EXPECT_EQ(report.streams[0].payload_bytes, width * count);
        EXPECT_EQ(report.streams[0].frame_bytes, width * count + n * buckets * kFrameHeaderSize);
      }
}

// Frames of `count` values in chunks of `chunk`.
uint64_t frames_size(const Codec& codec, size_t count, size_t chunk) {
  uint64_t size = 0;
  for (; count > 0; count -= std::min(count, chunk))
    size += kFrameHeaderSize +
            codec.max_encoded_size(single_tensor({.name = "x", .shape = {std::min(count, chunk)}}));
  return size;
}

class ScatterReduceBytes : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ScatterReduceBytes, ::testing::Range(uint64_t{1}, uint64_t{17}));

TEST_P(ScatterReduceBytes, AreThoseOfOtherShardsOnceAndOfTheOwnToEveryOther) {
  const uint64_t n = GetParam();
  for (const ExchangeOptions& usual : codecs_and_methods()) {
    if (usual.method != "scatter-reduce") continue;
    ExchangeOptions options = usual;
    const Terms terms = terms_of(options);
    const size_t block = terms.codec->info().block;
    options.chunk_values = 5 * block;
    for (const size_t count : {size_t{1}, 7 * block, 64 * block + 1, 12 * n * block}) {
      const size_t blocks = (count + block - 1) / block;
      std::vector<uint64_t> shard;  // sizes
      for (uint64_t j = 0; j < n; ++j) {
        const size_t begin = blocks * j / n * block;
        shard.push_back(frames_size(
            *terms.codec, std::min(count, blocks * (j + 1) / n * block) - std::min(count, begin),
            options.chunk_values));
      }
      const uint64_t all = std::accumulate(shard.begin(), shard.end(), uint64_t{0});
      const auto of_ranks =
          reports(static_cast<int>(n), {{"w", {count}, TensorKind::kLinear}}, options);
      for (size_t r = 0; r < n; ++r) {
        EXPECT_EQ(of_ranks[r].sent_bytes, all - shard[r] + (n - 1) * shard[r] + agreement_bytes(n));
        EXPECT_EQ(of_ranks[r].received_bytes,
                  (n - 1) * shard[r] + all - shard[r] + agreement_bytes(n));
        EXPECT_EQ(of_ranks[r].streams[0].frame_bytes, all);
        EXPECT_EQ(of_ranks[r].streams[0].kept, count);
      }
      if (count == 12 * n * block) {  // as docs/collectives.md puts it
        const uint64_t c = of_ranks[0].streams[0].payload_bytes;
        EXPECT_EQ(of_ranks[0].sent_bytes,
                  2 * (n - 1) * (c / n + 3 * kFrameHeaderSize) + agreement_bytes(n));
      }
    }
  }
}

// What rank r sends in one round of `floats` floats: parts of shards that others own, and its own
// shard's mean to all others.
uint64_t reduction_bytes(uint64_t n, uint64_t r, uint64_t floats) {
  uint64_t bytes = 0;
  for (uint64_t j = 0; j < n; ++j) {
    const uint64_t shard = floats * (j + 1) / n - floats * j / n;
    const uint64_t message = shard == 0 ? 0 : kFrameHeaderSize + 4 * shard;
    bytes += j == r ? (n - 1) * message : message;
  }
  return bytes;
}

class AgreedBytes : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AgreedBytes, ::testing::Range(uint64_t{1}, uint64_t{17}));

// Two tensors of 240 and 1000 values in 10 and 42 blocks, and a bias of 7 that rides with them.
TEST_P(AgreedBytes, AreThoseOfEachRoundOfAllStreamsTogether) {
  const uint64_t n = GetParam();
  all_codecs();
  const std::vector<TensorSpec> model = {{"v", {240}, TensorKind::kLinear},
                                         {"w", {1000}, TensorKind::kLinear},
                                         {"b", {7}, TensorKind::kBias}};
  const auto factors = reports(static_cast<int>(n), model, {.codec = "test-factors"});
  const auto leader = reports(static_cast<int>(n), model, {.codec = "test-leader"});
  for (uint64_t r = 0; r < n; ++r) {
    // Step 1 is odd: one round of factors.
    EXPECT_EQ(factors[r].sent_bytes, reduction_bytes(n, r, 10 + 42 + 7) + agreement_bytes(n));
    EXPECT_EQ(factors[r].streams[0].payload_bytes + factors[r].streams[1].payload_bytes, 4u * 52);
    uint64_t positions = 0;  // of the root of step 1
    for (size_t stream = 0; stream < 2; ++stream)
      positions += leader[1 % n].streams[stream].payload_bytes;
    positions -= 4 * (24 + 100);
    EXPECT_GT(positions, 0u);
    const uint64_t message = r == 1 % n ? 8 + 2 * kFrameHeaderSize + positions : 0;
    EXPECT_EQ(leader[r].sent_bytes,
              (n - 1) * message + reduction_bytes(n, r, 24 + 100 + 7) + agreement_bytes(n));
  }
}

// Tensors travel together while what they offer is below bucket_bytes, however large they are.
TEST_P(AgreedBytes, AreFusedByWhatIsOffered) {
  const uint64_t n = GetParam();
  all_codecs();
  std::vector<TensorSpec> model;
  for (const char* name : {"a", "b", "c", "d"})
    model.push_back({name, {2400 * n}, TensorKind::kLinear});  // 100 n floats a round
  const auto fused = [&](size_t bucket_bytes) {
    const ExchangeOptions options{.codec = "test-factors", .bucket_bytes = bucket_bytes};
    return reports(static_cast<int>(n), model, options)[0].sent_bytes - agreement_bytes(n);
  };
  const auto round = [&](uint64_t tensors) {
    return 2 * (n - 1) * (4 * 100 * tensors + kFrameHeaderSize);
  };
  EXPECT_EQ(fused(400 * n), 4 * round(1));
  EXPECT_EQ(fused(400 * n + 4), 2 * round(2));
  EXPECT_EQ(fused(1600 * n), round(4));
}

// Four bytes for the scale of each tensor; biases have none.
TEST_P(Bytes, ASharedScaleTravelsBeforeWhatIsGathered) {
  const uint64_t n = GetParam();
  const std::vector<TensorSpec> model = {{"v", {240}, TensorKind::kLinear},
                                         {"w", {1000}, TensorKind::kLinear},
                                         {"b", {7}, TensorKind::kBias}};
  const auto own = reports(static_cast<int>(n), model, {.codec = "terngrad"});
  const auto shared = reports(static_cast<int>(n), model, {.codec = "terngrad:shared_scale=true"});
  for (uint64_t r = 0; r < n; ++r) {
    EXPECT_EQ(shared[r].sent_bytes, own[r].sent_bytes + reduction_bytes(n, r, 2));
    EXPECT_EQ(shared[r].streams[0].payload_bytes, own[r].streams[0].payload_bytes);
  }
}

TEST_P(Bytes, GatherSendsItsFramesToEveryOtherRank) {
  const uint64_t n = GetParam();
  const std::vector<TensorSpec> model = small_model();
  for (const CodecEntry* entry : all_codecs()) {
    const auto all = reports(static_cast<int>(n), model,
                             {.codec = std::string(entry->info.name), .method = "gather"});
    uint64_t of_all = 0;  // messages, one of each rank
    std::vector<uint64_t> message;
    for (const StepReport& report : all) {
      uint64_t frames = 0, payloads = 0;
      for (const StreamCounters& stream : report.streams) {
        frames += stream.frame_bytes;
        payloads += stream.payload_bytes;
      }
      EXPECT_EQ(frames, payloads + report.streams.size() * kFrameHeaderSize);
      message.push_back(8 + frames);
      of_all += message.back();
    }
    for (size_t rank = 0; rank < all.size(); ++rank) {
      EXPECT_EQ(all[rank].sent_bytes, (n - 1) * message[rank] + agreement_bytes(n));
      EXPECT_EQ(all[rank].received_bytes, of_all - message[rank] + agreement_bytes(n));
    }
  }
}

TEST_P(Bytes, WhatAllSendAllReceive) {
  std::vector<ExchangeOptions> all = one_per_method();
  all.push_back({.method = "library"});
  for (ExchangeOptions& options : all) {
    options.bucket_bytes = 300;
    uint64_t sent = 0, received = 0;
    for (const StepReport& report : reports(static_cast<int>(GetParam()), small_model(), options)) {
      sent += report.sent_bytes;
      received += report.received_bytes;
    }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(sent > 0, GetParam() > 1);
  }
}

TEST(ExchangeCounters, StreamsCountTheirValues) {
  const std::vector<TensorSpec> model = small_model();
  for (const CodecEntry* entry : all_codecs()) {
    uint64_t values = 0;
    for (const StepReport& report : reports(2, model, {.codec = std::string(entry->info.name)})) {
      values = 0;
      for (const StreamCounters& stream : report.streams) {
        values += stream.values;
        EXPECT_LE(stream.kept, stream.values);
        EXPECT_LE(stream.target, stream.values);
        EXPECT_TRUE(!entry->info.linear || stream.kept == stream.values);
      }
      uint64_t count = 0;
      for (const TensorSpec& tensor : model) count += tensor.count();
      EXPECT_EQ(values, count);
    }
  }
}

double norm(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

TEST(ExchangeCounters, NormsAreThoseOfTheGradientAndOfWhatIsKept) {
  for (const CodecEntry* entry : all_codecs())
    for (const bool norms : {true, false})
      run_local(2, [&](Group& group) {
        Side side(group, small_model(),
                  {.codec = std::string(entry->info.name),
                   .feedback = "residual",
                   .grouping = Grouping::kModel,
                   .bucket_bytes = 300,
                   .norms = norms});
        side.step(0);
        const StepReport report = side.step(1);
        Values given;
        for (const Values& tensor : gradients(small_model(), group.rank(), 1))
          given.insert(given.end(), tensor.begin(), tensor.end());
        Values kept(given.size());
        ASSERT_TRUE(copy_state(side.store().save(), "model/feedback/residual", kept).is_ok());
        EXPECT_NEAR(report.streams[0].gradient_norm, norms ? norm(given) : 0, 1e-9);
        EXPECT_NEAR(report.streams[0].rest_norm, norms ? norm(kept) : 0, 1e-9);
      });
}

// What is observed is gradient plus residual, streams of dense kinds left out, a NaN too.
TEST(ExchangeCounters, ObserversSeeWhatEncodersAreGiven) {
  run_local(2, [](Group& group) {
    const TensorSpec weight{"w", {30, 10}, TensorKind::kLinear};
    const TensorSpec bias{"b", {10}, TensorKind::kBias};
    std::vector<Values> seen;
    Side side(group, {weight, bias},
              {.codec = "topk:density=0.1",
               .observe = [&](const StreamSpec& stream, const Signal& signal, const Call& call) {
                 EXPECT_EQ(stream.name, "w");
                 EXPECT_EQ(call.step, seen.size());
                 EXPECT_EQ(call.salt, static_cast<uint64_t>(group.rank()));
                 seen.emplace_back(signal.values.begin(), signal.values.end());
               }});
    side.step(0);
    Values rest(weight.count());
    ASSERT_TRUE(copy_state(side.store().save(), "w/feedback/residual", rest).is_ok());
    side.step(1);
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_TRUE(same_bits(seen[0], gradient(weight, group.rank(), 0)));
    const Values second = gradient(weight, group.rank(), 1);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] += second[i];
    EXPECT_TRUE(same_bits(seen[1], rest));
  });
}

TEST(ExchangeCounters, TimesAddUp) {
  run_local(2, [](Group& group) {
    Side side(group, {{"w", {1000000}, TensorKind::kLinear}}, {.codec = "adacomp"});
    // Rank 0 has to wait; rank 1 may find all done when it asks.
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const StepReport report = side.step(0);
    EXPECT_GT(report.compress_seconds, 0);
    EXPECT_GT(report.decompress_seconds, 0);
    EXPECT_GT(report.wire_seconds, 0);
    if (group.rank() == 0) {
      EXPECT_GT(report.wait_seconds, 0);
    }
    for (const double seconds : {report.compress_seconds, report.decompress_seconds,
                                 report.wire_seconds, report.wait_seconds})
      EXPECT_LT(seconds, 60);
  });
}

}  // namespace
}  // namespace thinwire::testing
