// Tests of sparse-reduce beyond its values: traffic that does not grow with the number of ranks,
// the dense form above break-even, limits, and owners' residuals.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "exchange/layout/stripes.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

std::vector<TensorSpec> one(size_t count) { return {{"w", {count}, TensorKind::kLinear}}; }

// A step of `side` in which this rank gives `values`.
StepReport give(Side& side, Values values) {
  side.values = {std::move(values)};
  side.start(0);
  return side.exchange().finish();
}

using Given = std::function<Values(int rank)>;

std::vector<StepReport> reports(int ranks, const std::string& codec, const std::string& method,
                                const Given& given) {
  std::vector<StepReport> all(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    Values mine = given(group.rank());
    ExchangeOptions options{.codec = codec, .method = method};
    options.norms = false;
    Side side(group, one(mine.size()), options);
    all[static_cast<size_t>(group.rank())] = give(side, std::move(mine));
  });
  return all;
}

uint64_t agreement_bytes(uint64_t n) {
  uint64_t rounds = 0;
  while (uint64_t{1} << rounds < n) ++rounds;
  return 16 * rounds;
}

// Other values on every rank, in one part of the stream or in all of it.
Values spread_out(int rank) { return gradient(one(size_t{1} << 18)[0], rank, 0); }
Values in_one_layer(int rank) {
  Values values = spread_out(rank);
  for (size_t i = 0; i < values.size(); ++i)
    if (i < 70000 || i >= 100000) values[i] *= 1e-3f;
  return values;
}

// The formula of docs/collectives.md, for what is sent and for what is received, at any number of
// ranks, wherever in the stream the kept values lie.
TEST(SparseReduce, SendsAndReceivesTwoPayloadsAtAnyNumberOfRanks) {
  for (const std::string codec : {"topk:density=0.02", "topk:density=0.02,values=fp16"})
    for (const auto& [given, uneven] : {std::pair<Given, double>{spread_out, 1.05},
                                        std::pair<Given, double>{in_one_layer, 1.15}}) {
      const auto alone = reports(1, codec, "gather", given);
      const double payload = static_cast<double>(alone[0].streams[0].payload_bytes);
      for (const int ranks : {2, 3, 4, 8, 16, 64}) {
        const double n = ranks;
        // Each with its length, the count of its values, and the bytes that its bits fill up.
        const double frames = 2 * (n - 1) * (8 + kFrameHeaderSize + 8 + 4);
        const double bound = uneven * 2 * (n - 1) / n * payload + frames +
                             static_cast<double>(agreement_bytes(static_cast<uint64_t>(ranks)));
        for (const StepReport& report : reports(ranks, codec, "sparse-reduce", given)) {
          EXPECT_LE(static_cast<double>(report.sent_bytes), bound) << ranks;
          EXPECT_GE(static_cast<double>(report.sent_bytes), 0.8 * bound) << ranks;
          EXPECT_LE(static_cast<double>(report.received_bytes), bound) << ranks;
        }
      }
    }
}

// What all owners hand out is what one rank keeps, and every rank counts the same.
TEST(SparseReduce, TheMeanKeepsWhatARankKeeps) {
  for (const int ranks : {1, 2, 5, 16}) {
    const auto all = reports(ranks, "topk:density=0.02", "sparse-reduce", spread_out);
    for (const StepReport& report : all) {
      const StreamCounters& stream = report.streams[0];
      EXPECT_EQ(stream.kept, 5243u);
      EXPECT_EQ(stream.target, 5243u);
      EXPECT_EQ(stream.reduced, all[0].streams[0].reduced);
      EXPECT_GE(stream.reduced, 5243u);
      EXPECT_LT(stream.reduced, 5243u + static_cast<uint64_t>(ranks));  // each owner rounds up
      EXPECT_EQ(stream.dense_frames, 0u);
    }
  }
}

// Past break-even everything travels without positions, nothing is owed, and the bytes are those of
// dense; below it positions come back.
TEST(SparseReduce, ChangesToDensePastBreakEvenAndBack) {
  constexpr uint64_t kCount = 64 * 120;
  for (const uint64_t n : {2, 3, 5})
    run_local(static_cast<int>(n), [&](Group& group) {
      ExchangeOptions options{.codec = "topk:density=table(1;0.5@2;0.99@4)",
                              .method = "sparse-reduce"};
      Side side(group, one(kCount), options);
      for (uint64_t step = 0; step < 6; ++step) {
        Values mine = gradient(one(kCount)[0], group.rank(), step);
        for (float& value : mine) value += 1.0f;  // zeros are never kept
        const StepReport report = give(side, std::move(mine));
        const StreamCounters& stream = report.streams[0];
        const bool dense = step < 2 || step >= 4;
        EXPECT_EQ(stream.dense_frames, dense ? n : 0) << step;
        if (!dense) {
          EXPECT_LT(report.sent_bytes, report.dense_bytes);
          continue;
        }
        EXPECT_EQ(stream.reduced, kCount);
        EXPECT_EQ(report.sent_bytes,
                  2 * (n - 1) * (4 * kCount / n + 8 + kFrameHeaderSize) + agreement_bytes(n));
        const auto owed = owed_by_owner(side.store().save(), "w", kCount);
        ASSERT_TRUE(owed);
        EXPECT_EQ(*owed, Values(kCount)) << "all of the mean was handed out";
      }
    });
}

TEST(SparseReduce, OneRankGetsWhatGatherGives) {
  run_local(1, [](Group& group) {
    for (const std::string codec : {"topk:density=0.1", "sidco", "threshold", "randomk"}) {
      Side reduced(group, one(5000), {.codec = codec, .method = "sparse-reduce"});
      Side gathered(group, one(5000), {.codec = codec, .method = "gather"});
      for (uint64_t step = 0; step < 3; ++step) {
        reduced.step(step);
        gathered.step(step);
        EXPECT_TRUE(same_bits(reduced.values, gathered.values)) << codec;
      }
    }
  });
}

// Ranks that keep nothing take part, and nobody pads to the largest contribution.
TEST(SparseReduce, EmptyContributionsCostTheirHeaders) {
  constexpr size_t kCount = 64 * 80;
  for (const bool all_empty : {true, false}) {
    const Given given = [&](int rank) {
      return all_empty || rank != 1 ? Values(kCount) : gradient(one(kCount)[0], rank, 0);
    };
    const auto all = reports(4, "threshold:threshold=0.001", "sparse-reduce", given);
    const uint64_t header = 8 + kFrameHeaderSize + 8;
    if (all_empty) {
      for (const StepReport& report : all)
        EXPECT_EQ(report.sent_bytes, 2 * 3 * header + agreement_bytes(4));
      EXPECT_EQ(all[0].streams[0].reduced, 0u);
      continue;
    }
    EXPECT_EQ(all[0].streams[0].kept, 0u);
    EXPECT_GT(all[1].streams[0].kept, 3000u);
    for (const size_t empty : {0, 2, 3})
      EXPECT_LT(all[empty].sent_bytes, all[1].sent_bytes / 3);  // a quarter of its values each
  }
}

// All that a rank keeps lies where one owner is: it takes its limit, the others stay with their
// rank.
TEST(SparseReduce, AnOwnerIsNeverGivenMoreThanItsLimit) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 64 * 256;
  constexpr size_t kKept = 1638;                      // a tenth
  constexpr size_t kMost = 2 * (kKept / 4 + 1) + 16;  // of a region
  std::vector<Values> given(kRanks);
  std::vector<StateArrays> saved(kRanks);
  Values mean;
  run_local(kRanks, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Values& mine = given[rank] = gradient(one(kCount)[0], group.rank(), 0);
    for (uint32_t p = 0; p < kCount; ++p)
      if (Stripes(kCount, kRanks).place(p).region != 2) mine[p] *= 1e-4f;
    Side side(group, one(kCount), {.codec = "topk:density=0.1", .method = "sparse-reduce"});
    const StepReport report = give(side, mine);
    EXPECT_EQ(report.streams[0].kept, kMost);
    EXPECT_LE(report.received_bytes, 3 * (8 * kMost + 200) + 16);
    saved[rank] = side.store().save();
    if (rank == 0) mean = side.values[0];
  });
  Values owed(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    double sum = -mean[i];
    for (size_t r = 0; r < given.size(); ++r) sum += given[r][i] / double{kRanks};
    owed[i] = static_cast<float>(sum);
  }
  for (const StateArrays& state : saved) {
    Values residual(kCount);
    ASSERT_TRUE(copy_state(state, "w/feedback/residual", std::span(residual)));
    const auto owner = owed_by_owner(state, "w", kCount);
    for (size_t i = 0; i < kCount; ++i) owed[i] -= residual[i] / kRanks + (*owner)[i];
  }
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(owed[i], 0, 1e-8) << i;
}

// The same gradients again and again, with other positions kept on every rank: all of the mean
// arrives in the end.
TEST(SparseReduce, OwnersHandOutLaterWhatTheyKept) {
  constexpr size_t kCount = 4096;
  run_local(4, [&](Group& group) {
    Side side(group, one(kCount), {.codec = "topk:density=0.05", .method = "sparse-reduce"});
    std::vector<double> sum(kCount), mean(kCount);
    for (int rank = 0; rank < 4; ++rank) {
      const Values of_rank = gradient(one(kCount)[0], rank, 0);
      for (size_t i = 0; i < kCount; ++i) mean[i] += of_rank[i] / 4.0;
    }
    constexpr int kSteps = 400;
    for (int step = 0; step < kSteps; ++step) {
      give(side, gradient(one(kCount)[0], group.rank(), 0));
      for (size_t i = 0; i < kCount; ++i) sum[i] += side.values[0][i];
    }
    double off = 0, all = 0;
    for (size_t i = 0; i < kCount; ++i) {
      off += std::pow(sum[i] / kSteps - mean[i], 2);
      all += std::pow(mean[i], 2);
    }
    EXPECT_LT(off, 0.02 * all);
  });
}

TEST(SparseReduce, WhatIsOwedSurvivesAnotherNumberOfRanks) {
  constexpr size_t kCount = 10000;
  const auto step_and_save = [&](size_t ranks, const std::vector<StateArrays>& from, bool step) {
    std::vector<StateArrays> saved(ranks);
    run_local(static_cast<int>(ranks), [&](Group& group) {
      const auto store = std::make_shared<Store>();
      if (!from.empty()) {
        EXPECT_TRUE(store->load(from, group.rank(), group.size()));
      }
      Side side(group, one(kCount), {.codec = "topk:density=0.1", .method = "sparse-reduce"},
                store);
      EXPECT_TRUE(store->unclaimed().empty());
      if (step) side.step(0);
      saved[static_cast<size_t>(group.rank())] = store->save();
    });
    return saved;
  };
  const auto owed = [&](const std::vector<StateArrays>& saved) {
    std::vector<double> sum(kCount);
    for (const StateArrays& of_rank : saved) {
      Values residual(kCount);
      EXPECT_TRUE(copy_state(of_rank, "w/feedback/residual", std::span(residual)));
      const auto owner = owed_by_owner(of_rank, "w", kCount);
      for (size_t i = 0; i < kCount; ++i)
        sum[i] += residual[i] / static_cast<double>(saved.size()) + double{(*owner)[i]};
    }
    return sum;
  };
  const auto three = step_and_save(3, {}, true);
  const std::vector<double> before = owed(three);
  for (const size_t ranks : {1, 2, 3, 4}) {
    const std::vector<double> after = owed(step_and_save(ranks, three, false));
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(after[i], before[i], 1e-9) << ranks;
  }
  step_and_save(4, three, true);
}

// A part that is flagged, or broken, on its way to one owner: all ranks skip and name its sender.
TEST(SparseReduce, ABadPartIsItsSendersFault) {
  constexpr size_t kCount = 64 * 60;
  for (const bool flag : {true, false})
    run_local(3, [&](Group& group) {
      bool first = true;  // the part; the mean follows
      TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
        if (tag != 1 || from != 0 || group.rank() != 2 || !std::exchange(first, false)) return;
        FrameHeader header = read_frame(message).value().header;
        if (flag) {
          header.flags = kFrameNonFinite;
          header.payload_size = 0;
        } else {
          message[kFrameHeaderSize] = std::byte{0xFF};  // more values than there are
          message[kFrameHeaderSize + 2] = std::byte{0xFF};
        }
        seal_frame(header, message.first(kFrameHeaderSize + header.payload_size));
      });
      Side side(tampering, one(kCount), {.codec = "topk:density=0.1", .method = "sparse-reduce"});
      const StateArrays before = side.store().save();
      const StepReport report = side.step(0);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.rank, 0);
      EXPECT_TRUE(same_state(side.store().save(), before));
      EXPECT_FALSE(side.step(1).skipped);
    });
}

}  // namespace
}  // namespace thinwire::testing
