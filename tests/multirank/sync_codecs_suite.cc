// Compressed rounds: the same bits everywhere whatever the codec, and nothing lost for good.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "exchange/testing/agreeing_codecs.h"
#include "multirank/ranks.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using Values = std::vector<float>;

class SyncCodecs : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
};
// Codecs differ, numbers of ranks do not: a few of these.
std::vector<int> few_counts() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count != 2 && count != 3; });
  return counts;
}
INSTANTIATE_TEST_SUITE_P(Ranks, SyncCodecs, ::testing::ValuesIn(few_counts()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SyncCodecs);

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

// Each worker somewhere else, and no more steps: what moves is moved by rounds.
void scatter(Worker& worker, int rank) {
  worker.rate = 0;
  for (size_t i = 0; i < worker.x.size(); ++i)
    worker.x[i] += 0.05f * static_cast<float>(rank + 1) * std::sin(static_cast<float>(i * i));
}

TEST_P(SyncCodecs, EveryCodecLeavesAllWithTheSameLeader) {
  for (const CodecEntry* codec : all_codecs())
    on_all([&](Group& group) {
      const std::string name(codec->info.name);
      const int groups = n() - 1;
      Worker worker(group, {.method = "leader:tau=1,tau_global=2,pull=1,pull_global=1,groups=" +
                                      std::to_string(groups),
                            .codec = name});
      for (int step = 0; step < 8; ++step) {
        const auto report = worker.step();
        const auto all = gather<float>(group, worker.x);
        if (!report || !report->global) continue;
        ASSERT_FALSE(report->skipped) << name;
        Values followed;
        for (int r = 0; r < n(); ++r) {
          if (r == report->leader) continue;
          if (followed.empty()) followed = all[static_cast<size_t>(r)];
          EXPECT_TRUE(same_bits(all[static_cast<size_t>(r)], followed)) << name << ", rank " << r;
        }
      }
    });
}

TEST_P(SyncCodecs, EveryCodecLeavesMeansWithTheSameBits) {
  for (const CodecEntry* codec : all_codecs())
    for (const std::string method : {"average:tau=2", "easgd:tau=2", "diloco:tau=2",
                                     "sparseloco:tau=2", "streaming:tau=2,fragments=2,delay=1"})
      on_all([&](Group& group) {
        const std::string name(codec->info.name);
        Worker worker(group, {.method = method, .codec = name});
        Values centre(worker.x.size());
        for (int step = 0; step < 8; ++step) {
          const auto report = worker.step();
          if (!report) continue;
          ASSERT_FALSE(report->skipped) << name;
          if (!method.starts_with("average"))
            worker.sync().centre(worker.x, centre);
          else
            centre = worker.x;
          for (const auto& theirs : gather<float>(group, centre))
            EXPECT_TRUE(same_bits(theirs, centre)) << method << " " << name;
        }
      });
}

// A leader that stands still is reached, by codecs whose error is a share of their input: each
// difference holds what the ones before it left.
TEST_P(SyncCodecs, WhatOneDifferenceCouldNotCarryIsInTheNext) {
  for (const std::string codec : {"fp16", "bf16", "int8", "int4", "topk:density=0.1",
                                  "sidco:density=0.1", "adacomp:bin_convolution=20,bin_linear=20"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "leader:tau=1,tau_global=1,pull_global=1", .codec = codec});
      worker.reported = [&](double) { return group.rank() == 0 ? 1.0 : 2.0; };
      scatter(worker, group.rank());
      const Values leader = gather<float>(group, worker.x)[0];
      worker.step();
      const double at_first = largest_difference(worker.x, leader);
      if (group.rank() == 0) {
        EXPECT_EQ(at_first, 0);
      } else {
        EXPECT_GT(at_first, 0) << codec;
      }
      for (int round = 0; round < 60; ++round) worker.step();
      EXPECT_LE(largest_difference(worker.x, leader), 1e-6) << codec;
    });
}

// Followers that adopt what they are told hold r: the sum of what one encoder made of the
// differences, which learns from each of them (sidco counts and adapts its stages).
TEST_P(SyncCodecs, AReferenceIsTheSumOfOneEncodersDifferences) {
  const std::string codec = "sidco:density=0.05,window=2";
  on_all([&](Group& group) {
    Worker worker(group,
                  {.method = "leader:tau=1,tau_global=1,pull_global=1", .codec = codec, .seed = 8});
    worker.reported = [&](double) { return group.rank() == 0 ? 1.0 : 2.0; };
    if (group.rank() > 0) worker.rate = 0;
    const StreamSpec stream{.name = "leader/global", .tensors = vector_model()};
    const NamedCodec named = std::move(make_codec(codec).value());
    const Codec& plain = *named.codec;
    const auto encoder = plain.make_encoder(stream);
    const auto decoder = plain.make_decoder(stream);
    Values r = start_values(), difference(r.size());
    std::vector<std::byte> payload(plain.max_encoded_size(stream));
    for (uint64_t round = 0; round < 40; ++round) {
      worker.step();
      const Values leader = gather<float>(group, worker.x)[0];
      for (size_t i = 0; i < r.size(); ++i) difference[i] = leader[i] - r[i];
      const size_t size =
          encoder->encode({.values = difference}, {.seed = 8, .step = round}, payload, {}).size;
      encoder->commit();
      decoder->decode_add(std::span(payload).first(size), 1, r).or_throw();
      if (group.rank() > 0) {
        ASSERT_TRUE(same_bits(worker.x, r)) << round;
      }
    }
  });
}

// Workers that stand still are found by the estimate that all follow, and by the centre after it.
TEST_P(SyncCodecs, ACentreFindsTheMeanOfWorkersThatStandStill) {
  for (const std::string codec : {"int8", "topk:density=0.1"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "easgd:tau=1,rate=0.5", .codec = codec});
      scatter(worker, group.rank());
      const Values still = worker.x;
      Values mean(still.size());
      for (const Values& theirs : gather<float>(group, still))
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i] / static_cast<float>(n());
      for (int round = 0; round < 100; ++round) {
        worker.x = still;
        worker.step();
      }
      Values centre(still.size());
      worker.sync().centre(worker.x, centre);
      EXPECT_LE(largest_difference(centre, mean), 2e-6) << codec;
    });
}

// The exchange's memory delivers what the first mean left.
TEST_P(SyncCodecs, WorkersThatAverageReachTheMeanOfWhereTheyWere) {
  for (const std::string codec : {"fp16", "int8", "topk:density=0.1"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "average:tau=1", .codec = codec});
      scatter(worker, group.rank());
      Values mean(worker.x.size());
      for (const Values& theirs : gather<float>(group, worker.x))
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += theirs[i] / static_cast<float>(n());
      for (int round = 0; round < 60; ++round) worker.step();
      // fp16 keeps no memory: half a unit of 2^-10 of the largest difference, 0.2, twice.
      EXPECT_LE(largest_difference(worker.x, mean), codec == "fp16" ? 0.2 * 0x1p-10 : 2e-6)
          << codec;
    });
}

TEST_P(SyncCodecs, WorkersThatPullEachOtherMeet) {
  for (const std::string codec : {"fp16", "int8", "topk:density=0.1"})
    for (const std::string centre : {"variable", "mean"})
      on_all([&](Group& group) {
        Worker worker(group, {.method = "easgd:tau=1,rate=0.5,centre=" + centre, .codec = codec});
        scatter(worker, group.rank());
        for (int round = 0; round < 200; ++round) worker.step();
        for (const Values& theirs : gather<float>(group, worker.x))
          EXPECT_LE(largest_difference(theirs, worker.x), 1e-5) << codec << " " << centre;
      });
}

// One byte a value, and the scale of its one block of 256.
TEST_P(SyncCodecs, EightBitsAreAQuarter) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "leader:tau=1,tau_global=1", .codec = "int8"});
    const auto report = worker.step();
    EXPECT_EQ(report->payload_bytes, kModelSize + 4);
    EXPECT_EQ(report->values, kModelSize);
    const uint64_t frame = report->leader == group.rank() ? 0 : 48 + kModelSize + 4;
    const auto others = static_cast<uint64_t>(n() - 1);
    EXPECT_EQ(report->received_bytes,
              frame + 16 * others + 16 * static_cast<uint64_t>(std::bit_width(others)));
  });
}

}  // namespace
}  // namespace thinwire::testing
