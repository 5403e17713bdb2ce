// Rules other than the mean in use: hostile ranks, ranks that are too few, changes of the codec,
// every codec and method.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "exchange/terms/agreement_text.h"
#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

class ExchangeCombineUses : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeCombineUses, ::testing::ValuesIn(three_ranks_and_more()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeCombineUses);

const TensorSpec kTensor{"linear.weight", {40, 25}, TensorKind::kLinear};

TEST_P(ExchangeCombineUses, AMinorityOfRanksCannotMoveTheMedianFar) {
  const int bad = (GetParam() - 1) / 2;
  for (const std::string text : {"fp32", "int8", "topk:density=1"})
    on_all([&](Group& group) {
      Side side(group, {kTensor}, {.codec = text, .feedback = "none", .combine = "median"});
      side.values = gradients({kTensor}, group.rank(), 0);
      if (group.rank() < bad)
        for (float& value : side.values[0]) value = 1e30f;
      side.start(0);
      EXPECT_FALSE(side.exchange().finish().skipped);
      for (const float value : side.values[0]) EXPECT_LE(std::abs(value), 0.051f) << text;
    });
}

// Rank 0 is largest in the first tensor and in the second, rank 1 in all that there is. What
// decides bucket by bucket, or section by section, leaves out rank 0.
TEST_P(ExchangeCombineUses, AllBucketsAndSectionsDecideTogether) {
  const std::vector<TensorSpec> model{{"x", {10}, TensorKind::kLinear},
                                      {"y", {10}, TensorKind::kLinear},
                                      {"z", {10}, TensorKind::kLinear}};
  const TensorRule by_gather{.pattern = "y", .codec = "fp32", .method = "gather"};
  const TensorRule in_halves{.pattern = "z", .codec = "fp16", .method = "scatter-reduce"};
  for (const std::string method : {"scatter-reduce", "gather"})
    for (const bool weighted : {false, true})
      for (const std::vector<TensorRule>& rules :
           {std::vector<TensorRule>{}, {by_gather}, {by_gather, in_halves}})
        on_all([&](Group& group) {
          Side side(group, model,
                    {.codec = "fp32",
                     .method = method,
                     .combine = "cge",
                     .weighted = weighted,
                     .rules = rules,
                     .bucket_bytes = 40});
          for (int step = 0; step < 2; ++step) {
            const float of[3] = {group.rank() == 0 ? 3.0f : 2.0f, group.rank() == 0 ? 3.0f : 2.0f,
                                 group.rank() == 0   ? 0.0f
                                 : group.rank() == 1 ? 4.0f
                                                     : 1.0f};
            side.values = {Values(10, of[0]), Values(10, of[1]), Values(10, of[2])};
            for (size_t i = 0; i < 3; ++i) side.start(i);
            EXPECT_FALSE(side.exchange().finish().skipped);
            const float rest = static_cast<float>(group.size() - 1);
            for (const size_t i : {0, 1})
              for (const float value : side.values[i])
                EXPECT_NEAR(value, 2 + 1 / rest, 1e-6) << method;
            for (const float value : side.values[2])
              EXPECT_NEAR(value, (rest - 1) / rest, 1e-3) << method;
          }
        });
}

TEST_P(ExchangeCombineUses, HostileRanksAreLeftOut) {
  const int n = GetParam(), most = (n - 1) / 2, few = (n - 3) / 2;
  const std::pair<int, std::string> rules[] = {
      {most, "cge:f=" + std::to_string(most)},
      {few, "krum:f=" + std::to_string(few)},
      {few, "krum:f=" + std::to_string(few) + ",m=" + std::to_string(n - few)}};
  for (const auto& [bad, rule] : rules)
    for (const std::string text : {"fp32", "int8", "bf16", "topk:density=1"})
      for (const Results results : {Results::kFull, Results::kShard})
        on_all([&, bad = bad, rule = rule](Group& group) {
          const ExchangeOptions options{.codec = text,
                                        .feedback = "none",
                                        .combine = rule,
                                        .results = results,
                                        .chunk_values = 60};
          if (!resolve_terms(options, 0)) return;
          Side side(group, {kTensor}, options);
          side.values = gradients({kTensor}, group.rank(), 0);
          if (group.rank() >= group.size() - bad)
            for (float& value : side.values[0]) value = 1e30f;
          side.start(0);
          const StepReport report = side.exchange().finish();
          EXPECT_FALSE(report.skipped);
          for (int rank = n - bad; rank < n; ++rank)
            EXPECT_EQ(std::count(report.unchosen.begin(), report.unchosen.end(), rank), 1) << rule;
          const int chosen =
              rule.starts_with("cge") || rule.ends_with(std::to_string(n - bad)) ? n - bad : 1;
          EXPECT_EQ(report.unchosen.size(), static_cast<size_t>(n - chosen)) << rule;
          if (results == Results::kFull) {
            for (const float value : side.values[0]) EXPECT_LE(std::abs(value), 0.051f) << text;
            return;
          }
          for (const OwnedRange& range : side.exchange().owned(group.rank()))
            for (size_t i = range.begin; i < range.begin + range.count; ++i)
              EXPECT_LE(std::abs(side.values[0][i]), 0.051f) << text;
        });
}

TEST_P(ExchangeCombineUses, RulesNeedEnoughRanksInEveryStep) {
  const int f = (GetParam() - 1) / 2;
  const auto text = [](const std::string& named, int left_out) {
    return "combine = " + named + " needs 2 f + 1 = " + std::to_string(2 * left_out + 1) +
           " ranks at least, and ";
  };
  for (const std::string method : {"scatter-reduce", "gather"})
    for (const std::string name : {"cge:f=", "trimmed_mean:f="})
      on_all([&](Group& group) {
        const std::string rule = name + std::to_string(f), more = name + std::to_string(f + 1);
        const int n = group.size();
        try {
          Side(group, small_model(), {.combine = more});
          ADD_FAILURE() << more << " at " << n;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kBadOption);
          EXPECT_EQ(std::string(error.what()),
                    "exchange: " + text(more, f + 1) + "the group has " + std::to_string(n));
        }
        Side side(group, small_model(),
                  {.codec = "fp32",
                   .feedback = "residual",
                   .method = method,
                   .combine = rule,
                   .weighted = true,
                   .chunk_values = 4,
                   .max_skipped = 1});
        EXPECT_FALSE(side.step(0).skipped);
        const StateArrays before = side.store().save();
        // As many as the rule can spare, then one more.
        const int spare = n - (2 * f + 1);
        for (const int out : {spare, spare + 1}) {
          if (group.rank() < out) side.exchange().abstain(Abstention::kSitsOut);
          const StepReport report = side.step(1);
          EXPECT_EQ(report.participants, static_cast<uint64_t>(n - out));
          EXPECT_EQ(report.skipped, out > spare) << method;
          if (!report.skipped) continue;
          EXPECT_EQ(report.fault.code, ErrorCode::kOk);
          EXPECT_EQ(describe(report.fault), text(rule, f) + std::to_string(n - out) + " took part");
          for (const Values& values : side.values)
            for (const float value : values) EXPECT_EQ(value, 0);
        }
        EXPECT_TRUE(same_state(side.store().save(), before));  // fp32 leaves nothing
        EXPECT_FALSE(side.step(3).skipped);
      });
}

TEST_P(ExchangeCombineUses, RulesOverVectorsTakeBfloat16) {
  on_all([](Group& group) {
    Store store;
    const auto exchange = make_exchange(group, store, {{"w", {50}, TensorKind::kLinear}},
                                        {.codec = "fp32", .combine = "cge:f=1"});
    const bool large = group.rank() == 1;
    std::vector<uint16_t> values(50, large ? 0x7e00 : 0x3f80);  // 4e37, 1
    exchange->start(0, {.data = values.data(), .count = 50, .dtype = DType::kBFloat16});
    EXPECT_FALSE(exchange->finish().skipped);
    EXPECT_EQ(values, std::vector<uint16_t>(50, 0x3f80));
  });
}

// By a schedule, and by a call.
TEST_P(ExchangeCombineUses, RulesOverVectorsOutlastChangesOfTheCodec) {
  on_all([](Group& group) {
    ExchangeOptions options{.codec = "fp32 | 2steps: int8",
                            .feedback = "none",
                            .combine = "cge:f=1",
                            .bucket_bytes = 900};
    const std::vector<TensorSpec> model{{"a", {3}, TensorKind::kLinear},
                                        {"b", {40, 25}, TensorKind::kLinear},
                                        {"c", {17, 9}, TensorKind::kLinear}};
    Side side(group, model, options);
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 4) {
        options.codec = "bf16";
        options.method = "auto";
        options.rules = {{.pattern = "b", .codec = "topk:density=1", .method = "gather"}};
        side.exchange().change(options);
      }
      side.values = gradients(model, group.rank(), step);
      for (size_t i = model.size(); i-- > 0;) {
        if (group.rank() == 1) side.values[i].assign(side.values[i].size(), 1e20f);
        side.start(i);
      }
      EXPECT_FALSE(side.exchange().finish().skipped) << step;
      for (const Values& values : side.values)
        for (const float value : values) EXPECT_LE(std::abs(value), 0.051f) << step;
    }
  });
}

// Some steps: the same bits everywhere.
TEST_P(ExchangeCombineUses, EveryCodecGivesAllRanksTheSameBits) {
  std::vector<ExchangeOptions> all;
  for (ExchangeOptions options : codecs_and_methods(4))
    for (const char* rule :
         {"median", "trimmed_mean", "mean_around_median", "cge:f=1", "krum:f=0", "bulyan:f=0",
          "mda", "geometric_median", "bucketing:s=2 then median", "nnm then cge", "caf", "smea",
          "centred_clipping:tau=0.1", "nnm then centred_clipping:tau=0.1", "licm"}) {
      options.combine = rule;
      if (resolve_terms(options, 0)) all.push_back(options);
    }
  for (ExchangeOptions options : all) {
    options.bucket_bytes = 900;
    options.chunk_values = 16;
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      for (uint64_t step = 0; step < 3; ++step) EXPECT_FALSE(side.step(step).skipped);
      EXPECT_TRUE(same_on_all_ranks(group, side.values));
    });
  }
}

TEST_P(ExchangeCombineUses, MethodsThatOnlyAddSaySo) {
  for (const std::string method : {"dense", "sparse-reduce", "low-rank"}) {
    const std::string codec = method == "dense"      ? "fp32"
                              : method == "low-rank" ? "powersgd"
                                                     : "topk";
    const auto terms = resolve_terms({.codec = codec, .method = method, .combine = "median"}, 0);
    ASSERT_FALSE(terms);
    EXPECT_NE(terms.status().message().find("by mean alone; use "), std::string::npos);
  }
}

// A group of a hierarchy counts as one rank.
TEST_P(ExchangeCombineUses, GroupsInsideAreCountedAsOneEach) {
  const int n = GetParam();
  if (n % 3 != 0) return;
  on_all([&](Group& group) {
    const std::string rule = "trimmed_mean:f=" + std::to_string(n / 6 + 1);
    try {
      Side(group, small_model(), {.combine = rule, .inside = 3});
      ADD_FAILURE() << rule << " at " << n;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "exchange: combine = " + rule +
                    " needs 2 f + 1 = " + std::to_string(2 * (n / 6 + 1) + 1) +
                    " ranks at least, and the groups inside count as " + std::to_string(n / 3));
    }
    Side side(group, {kTensor}, {.codec = "fp32", .combine = "trimmed_mean:f=0", .inside = 3});
    EXPECT_FALSE(side.step(0).skipped);
  });
}

TEST(ExchangeCombineNames, MistakesNameTheChoices) {
  const auto why = [](const ExchangeOptions& options) {
    return std::string(check_exchange(options).message());
  };
  const auto has = [&](const ExchangeOptions& options, const std::string& text) {
    EXPECT_NE(why(options).find(text), std::string::npos) << why(options);
  };
  has({.combine = "medain"},
      "exchange: unknown combine 'medain'; known: mean, median, trimmed_mean, mean_around_median, "
      "cge, "
      "krum, multi_krum, bulyan, mda, geometric_median, centred_clipping, caf, smea, licm; did you "
      "mean 'median'?");
  has({.combine = "cge:g=1"}, "exchange: combine 'cge'");
  has({.combine = "cge:f=-1"}, "combine 'cge'");
  has({.combine = "krum:m=0"}, "combine 'krum'");
  has({.combine = "mda:f=17"}, "combine 'mda'");
  has({.combine = "geometric_median:nu=0"}, "combine 'geometric_median'");
  has({.combine = "mean:f=1"}, "exchange: combine 'mean'");
  has({.combine = "smea:f=9"}, "combine 'smea'");
  has({.combine = "centred_clipping:tau=0"}, "combine 'centred_clipping'");
  has({.method = "scatter-reduce", .combine = "licm"},
      "method scatter-reduce gives each rank its part of all contributions, and this rule keeps "
      "what "
      "follows from all; use gather");
  has({.combine = "centred_clipping", .results = Results::kShard},
      "centred_clipping and licm follow the whole result from step to step, of which ranks have "
      "shards; choose full results, or another rule");
  has({.combine = "cge:f=1", .inside = 2},
      "inside = 2: combine = cge:f=1 chooses among whole vectors");
  has({.feedback = "ef21", .combine = "cge:f=1"},
      "memory ef21 follows the mean over all ranks' estimates, and combine = cge:f=1");
  EXPECT_EQ(fixed_text({.combine = "cge"}), fixed_text({.combine = "cge:f=1"}));
  EXPECT_NE(fixed_text({.combine = "cge:f=2"}), fixed_text({.combine = "cge:f=1"}));
}

}  // namespace
}  // namespace thinwire::testing
