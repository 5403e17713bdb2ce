// Tests of weighted means, of ranks that sit out, and of ranks that ask to skip a step, to the bit.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "exchange/testing/exchange_oracle.h"
#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ExchangeWeights : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeWeights, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// Of every method; buckets and chunks are small, so that there are several.
std::vector<ExchangeOptions> all_options(int ranks) {
  std::vector<ExchangeOptions> all = codecs_and_methods(ranks);
  std::erase_if(
      all, [](const ExchangeOptions& options) { return terms_of(options).feedback == "ef21"; });
  for (ExchangeOptions& options : all) {
    options.weighted = true;
    options.bucket_bytes = 1000;
    options.chunk_values = 120;
  }
  return all;
}

// 0 where a rank sits out. In step 3 nobody does, in step 4 only one rank takes part.
std::vector<double> weights_of(int ranks, uint64_t step) {
  std::vector<double> weights;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool out =
        step == 4 ? rank != ranks / 2 : step != 3 && (rank + static_cast<int>(step)) % 3 == 1;
    weights.push_back(out ? 0 : 0.3 + 7 * rank + static_cast<double>(step));
  }
  if (std::count(weights.begin(), weights.end(), 0.0) == ranks) weights.front() = 2;
  return weights;
}

// A rank that sits out holds what must not be looked at.
StepReport weighted_step(Side& side, Group& group, uint64_t step,
                         const std::vector<double>& weights) {
  const double own = weights[static_cast<size_t>(group.rank())];
  side.values = gradients(small_model(), group.rank(), step);
  if (own > 0)
    side.exchange().set_weight(own);
  else
    side.exchange().abstain(Abstention::kSitsOut);
  for (Values& values : side.values)
    if (own == 0) std::fill(values.begin(), values.end(), kNaN);
  for (size_t i = side.values.size(); i-- > 0;) side.start(i);
  return side.exchange().finish();
}

TEST_P(ExchangeWeights, EveryMethodGivesTheWeightedMeanOfThoseThatTakePart) {
  for (const ExchangeOptions& options : all_options(GetParam()))
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      Oracle oracle(group.size(), small_model(), side.exchange().streams(), options.codec,
                    terms_of(options).feedback, terms_of(options).method->name, 0,
                    options.grouping);
      for (uint64_t step = 0; step < 7; ++step) {
        const auto weights = weights_of(group.size(), step);
        const StepReport report = weighted_step(side, group, step, weights);
        EXPECT_FALSE(report.skipped);
        EXPECT_EQ(report.participants,
                  static_cast<uint64_t>(std::count_if(weights.begin(), weights.end(),
                                                      [](double w) { return w > 0; })));
        const auto given = all_gradients(small_model(), group.size(), step);
        EXPECT_TRUE(same_bits(side.values, oracle.step(step, given, weights)))
            << options.codec << " " << options.method << ", rank " << group.rank() << ", step "
            << step;
      }
    });
}

TEST_P(ExchangeWeights, EveryMemoryIsGivenWhatCountsOneNth) {
  for (const FeedbackEntry* entry : list_feedbacks())
    for (const std::string codec : {"topk:density=0.1", "fp16", "test-nearest"}) {
      const ExchangeOptions options{
          .codec = codec, .feedback = std::string(entry->name), .weighted = true};
      if (entry->name == "ef21") continue;  // refused
      on_all([&](Group& group) {
        Side side(group, small_model(), options);
        Oracle oracle(group.size(), small_model(), side.exchange().streams(), options.codec,
                      options.feedback, terms_of(options).method->name);
        for (uint64_t step = 0; step < 5; ++step) {
          const auto weights = weights_of(group.size(), step);
          weighted_step(side, group, step, weights);
          const auto given = all_gradients(small_model(), group.size(), step);
          EXPECT_TRUE(same_bits(side.values, oracle.step(step, given, weights)))
              << options.codec << ", memory " << options.feedback << ", step " << step;
        }
      });
    }
}

TEST_P(ExchangeWeights, EqualWeightsGiveTheBitsOfNoneAndCostAWordForEachOther) {
  for (ExchangeOptions options : all_options(GetParam())) {
    on_all([&](Group& group) {
      Side weighted(group, small_model(), options);
      options.weighted = false;
      Side plain(group, small_model(), options);
      for (uint64_t step = 0; step < 3; ++step) {
        weighted.exchange().set_weight(0.1);
        const StepReport report = weighted.step(step);
        const StepReport expected = plain.step(step);
        EXPECT_TRUE(same_bits(weighted.values, plain.values)) << options.codec;
        EXPECT_EQ(report.sent_bytes,
                  expected.sent_bytes + 16 * static_cast<uint64_t>(group.size() - 1));
        EXPECT_EQ(expected.participants, static_cast<uint64_t>(group.size()));
      }
      EXPECT_TRUE(same_state(weighted.store().save(), plain.store().save())) << options.codec;
    });
    options.weighted = true;
  }
}

// Of a method where each rank owns its memories alone.
TEST_P(ExchangeWeights, ARankThatSitsOutKeepsItsMemoriesAndSendsNoValues) {
  if (GetParam() == 1) return;
  for (const std::string codec : {"topk:density=0.2", "sidco:density=0.2", "sign", "adacomp"})
    on_all([&](Group& group) {
      Side side(group, small_model(), {.codec = codec, .method = "gather", .weighted = true});
      std::vector<double> weights(static_cast<size_t>(group.size()), 1);
      weighted_step(side, group, 0, weights);
      const StateArrays before = side.store().save();
      weights.back() = 0;
      const StepReport report = weighted_step(side, group, 1, weights);
      EXPECT_FALSE(report.skipped);
      const bool out = group.rank() == group.size() - 1;
      EXPECT_EQ(same_state(side.store().save(), before), out) << codec;
      for (const StreamCounters& stream : report.streams)
        EXPECT_TRUE(stream.values == 0 || (stream.payload_bytes == 0) == out) << codec;
    });
}

// What was sent so far plus what is still remembered is what was given, each rank's times n w / sum
// of w.
TEST_P(ExchangeWeights, NothingIsLostWhenWeightsChange) {
  const TensorSpec tensor{"w", {20, 30}, TensorKind::kLinear};
  for (const std::string codec :
       {"topk:density=0.05", "scalecom:density=0.05", "lgc:density=0.1,block=4", "powersgd:rank=2",
        "powersgd:rank=2,alternate=true", "randomk:values=sign,density=0.1",
        "srht:values=sign,chunk=256", "countsketch:rows=1,values=sign", "countsketch:rows=5",
        "terngrad:shared_scale=true"})
    on_all([&](Group& group) {
      Side side(group, {tensor}, {.codec = codec, .feedback = "residual", .weighted = true});
      std::vector<double> owed(600);
      for (uint64_t step = 0; step < 6; ++step) {
        const auto weights = weights_of(group.size(), step);
        const double own = weights[static_cast<size_t>(group.rank())];
        if (own > 0)
          side.exchange().set_weight(own);
        else
          side.exchange().abstain(Abstention::kSitsOut);
        side.step(step);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (size_t i = 0; i < owed.size(); ++i) {
          for (int rank = 0; rank < group.size(); ++rank)
            owed[i] +=
                weights[static_cast<size_t>(rank)] / sum * double{gradient(tensor, rank, step)[i]};
          owed[i] -= side.values[0][i];
        }
      }
      Values mine(600), all(600 * static_cast<size_t>(group.size()));
      ASSERT_TRUE(copy_state(side.store().save(), "w/feedback/residual", std::span(mine)).is_ok());
      group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
      for (size_t i = 0; i < owed.size(); ++i) {
        double kept = 0;
        for (int rank = 0; rank < group.size(); ++rank)
          kept += all[600 * static_cast<size_t>(rank) + i] / group.size();
        EXPECT_NEAR(owed[i], kept, 1e-5) << codec;
      }
    });
}

TEST_P(ExchangeWeights, AStepInWhichAllSitOutNeverHappened) {
  for (const ExchangeOptions& options : one_per_method())
    on_all([&](Group& group) {
      ExchangeOptions asked = options;
      asked.weighted = true;
      asked.max_skipped = 2;
      Side side(group, small_model(), asked);
      side.step(0);
      const StateArrays before = side.store().save();
      for (uint64_t step = 1; step < 5; ++step) {  // more than max_skipped
        const StepReport report = weighted_step(
            side, group, step, std::vector<double>(static_cast<size_t>(group.size())));
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.participants, 0u);
        EXPECT_EQ(report.fault.code, ErrorCode::kOk);
        EXPECT_EQ(describe(report.fault), "no rank took part");
        for (const Values& values : side.values)
          for (const float value : values) EXPECT_EQ(value, 0);
      }
      EXPECT_TRUE(same_state(side.store().save(), before)) << options.method;
      EXPECT_FALSE(side.step(5).skipped);
    });
}

TEST_P(ExchangeWeights, MedianIsThatOfThoseThatTakePart) {
  for (const std::string method : {"gather", "scatter-reduce"})
    on_all([&](Group& group) {
      Side side(group, {{"w", {7}, TensorKind::kLinear}},
                {.codec = "fp32", .method = method, .combine = "median", .weighted = true});
      const bool out = group.size() > 1 && group.rank() == 0;
      side.exchange().set_weight(1 + group.rank());  // a median counts ranks
      if (out) side.exchange().abstain(Abstention::kSitsOut);
      side.values = {Values(7, out ? kNaN : static_cast<float>(group.rank()))};
      side.start(0);
      EXPECT_FALSE(side.exchange().finish().skipped);
      const float middle = static_cast<float>(group.size() > 1 ? group.size() : 0) / 2;
      for (const float value : side.values[0]) EXPECT_EQ(value, middle) << method;
    });
}

TEST_P(ExchangeWeights, ARankMaySkipAStepForAllInEveryExchange) {
  std::vector<ExchangeOptions> all = one_per_method();
  all.push_back({.codec = "fp32", .method = "library"});
  all.push_back({.codec = "topk:density=0.2", .feedback = "ef21"});
  for (ExchangeOptions options : all)
    for (const bool weighted : {false, true}) {
      options.weighted = weighted && options.feedback != "ef21";
      options.max_skipped = 2;
      on_all([&](Group& group) {
        Side side(group, small_model(), options);
        side.step(0);
        const StateArrays before = side.store().save();
        for (uint64_t step = 1; step < 5; ++step) {
          side.values = gradients(small_model(), group.rank(), step);
          if (group.rank() == group.size() - 1) {
            side.exchange().abstain(Abstention::kSkipsStep);
            side.values[7][0] = kNaN;
          }
          for (size_t i = side.values.size(); i-- > 0;) side.start(i);
          const StepReport report = side.exchange().finish();
          EXPECT_TRUE(report.skipped);
          EXPECT_EQ(report.fault.code, ErrorCode::kOk);
          EXPECT_EQ(report.fault.rank, group.size() - 1);
          for (const Values& values : side.values)
            for (const float value : values) EXPECT_EQ(value, 0);
        }
        EXPECT_TRUE(same_state(side.store().save(), before)) << options.method;
        EXPECT_FALSE(side.step(5).skipped);
      });
    }
}

TEST_P(ExchangeWeights, LibraryWeighsToo) {
  on_all([](Group& group) {
    Side dense(group, small_model(), {.codec = "fp32", .method = "dense", .weighted = true});
    Side library(group, small_model(), {.codec = "fp32", .method = "library", .weighted = true});
    for (uint64_t step = 0; step < 5; ++step) {
      const auto weights = weights_of(group.size(), step);
      weighted_step(dense, group, step, weights);
      EXPECT_FALSE(weighted_step(library, group, step, weights).skipped);
      for (size_t t = 0; t < dense.values.size(); ++t)
        for (size_t i = 0; i < dense.values[t].size(); ++i)
          EXPECT_NEAR(library.values[t][i], dense.values[t][i], 1e-6f);
    }
  });
}

TEST_P(ExchangeWeights, WeightsMayBeginAndEndInMidRun) {
  on_all([](Group& group) {
    Side side(group, small_model(), {.codec = "fp32"});
    Side plain(group, small_model(), {.codec = "fp32"});
    for (uint64_t step = 0; step < 6; ++step) {
      const bool weighted = step == 2 || step == 3;
      side.exchange().set_weighted(weighted);
      if (weighted) side.exchange().set_weight(1 + group.rank());
      side.step(step);
      plain.step(step);
      EXPECT_EQ(same_bits(side.values, plain.values), !weighted || group.size() == 1) << step;
    }
  });
}

template <typename Body>
std::string contract_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContract);
    return error.what();
  }
  return "nothing was thrown";
}

TEST_P(ExchangeWeights, MisuseSaysWhatIsMissing) {
  using ::testing::HasSubstr;
  on_all([](Group& group) {
    Side plain(group, small_model(), {});
    Exchange& one = plain.exchange();
    EXPECT_THAT(contract_error([&] { one.set_weight(2); }), HasSubstr("ExchangeOptions::weighted"));
    EXPECT_THAT(contract_error([&] { one.abstain(Abstention::kSitsOut); }),
                HasSubstr("ExchangeOptions::weighted"));
    Side weighted(group, small_model(), {.weighted = true});
    Exchange& other = weighted.exchange();
    for (const double bad : {0.0, -1.0, double{kNaN}, HUGE_VAL})
      EXPECT_THAT(contract_error([&] { other.set_weight(bad); }), HasSubstr("above 0 and finite"));
    weighted.values = gradients(small_model(), group.rank(), 0);
    weighted.start(0);
    EXPECT_THAT(contract_error([&] { other.set_weight(2); }),
                HasSubstr("while a step is under way"));
    EXPECT_THAT(contract_error([&] { other.abstain(Abstention::kSkipsStep); }),
                HasSubstr("while a step is under way"));
    other.finish();
  });
  const Status status = check_exchange({.codec = "topk", .feedback = "ef21", .weighted = true});
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("memory ef21 follows the mean"));
}

}  // namespace
}  // namespace thinwire::testing
