// Tests of rules: tensors with a codec, a memory and a method of their own have the mean that an
// exchange of them alone would give, to the bit, and all share one channel.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "exchange/terms/sections.h"
#include "exchange/testing/exchange_oracle.h"
#include "exchange/testing/exchange_testing.h"
#include "multirank/ranks.h"

namespace thinwire::testing {
namespace {

constexpr uint64_t kSteps = 4;

class ExchangeRules : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeRules, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// An oracle for the tensors of each section, which knows nothing of the others.
class RulesOracle {
 public:
  RulesOracle(int ranks, const std::vector<TensorSpec>& model,
              const std::vector<StreamSpec>& streams, const ExchangeOptions& options)
      : sections_(resolve_sections(options, model, options.first_step).value()) {
    std::map<std::string, size_t> section_of;
    for (size_t i = 0; i < model.size(); ++i) section_of[model[i].name] = sections_.of_tensor[i];
    for (size_t section = 0; section < sections_.used.size(); ++section) {
      std::vector<StreamSpec> own;
      for (const StreamSpec& stream : streams) {
        for (const TensorSpec& tensor : stream.tensors)
          EXPECT_EQ(section_of[tensor.name], section_of[stream.tensors[0].name]) << stream.name;
        if (section_of[stream.tensors[0].name] == section) own.push_back(stream);
      }
      const auto& [settings, terms, tensors] = sections_.used[section];
      oracles_.emplace_back(ranks, model, own, settings.codec, terms.feedback, terms.method->name);
    }
  }

  Tensors step(uint64_t number, const std::vector<Tensors>& given) {
    Tensors mean(given.front().size());
    for (size_t section = 0; section < oracles_.size(); ++section) {
      const Tensors own = oracles_[section].step(number, given);
      for (const size_t tensor : sections_.used[section].tensors) mean[tensor] = own[tensor];
    }
    return mean;
  }

 private:
  const Sections sections_;
  std::vector<Oracle> oracles_;
};

// Of every method, with memories and groupings that differ, some where buckets are cut.
std::vector<ExchangeOptions> ruled() {
  all_codecs();
  ExchangeOptions two{.codec = "topk:density=0.1"};  // two codecs, two methods, a memory each
  two.rules = {{.pattern = "conv.*", .codec = "test-nearest", .feedback = "ef21"}};
  ExchangeOptions every{.codec = "topk:density=0.5", .method = "sparse-reduce"};
  every.rules = {{.pattern = "conv.*", .codec = "fp16", .method = "dense"},
                 {.pattern = "emb*", .codec = "test-factors"},
                 {.pattern = "lstm.*", .codec = "test-leader"},
                 {.pattern = "temp*", .codec = "signum"},
                 {.pattern = "norm.*", .codec = "fp32", .method = "dense"},
                 {.pattern = "*.bias", .codec = "terngrad:shared_scale=true"}};
  ExchangeOptions whole{.codec = "topk:density=0.1", .grouping = Grouping::kModel};
  whole.rules = {
      {.pattern = "[cl]*.weight", .codec = "topk:density=0.1", .grouping = Grouping::kModel},
      {.pattern = "conv*", .codec = "adacomp", .grouping = Grouping::kModel},
      {.pattern = "temperature", .codec = "fp32"}};
  return {two, every, whole};
}

TEST_P(ExchangeRules, EachRuleIsAnExchangeOfItsTensorsToTheBit) {
  for (const size_t bucket_bytes : {size_t{500}, size_t{1} << 20})
    for (ExchangeOptions options : ruled())
      on_ranks(GetParam(), [&](Group& group) {
        ExchangeOptions own = options;
        own.bucket_bytes = bucket_bytes;
        Side side(group, small_model(), own);
        RulesOracle oracle(group.size(), small_model(), side.exchange().streams(), own);
        for (uint64_t step = 0; step < kSteps; ++step) {
          const StepReport report = side.step(step);
          EXPECT_FALSE(report.skipped);
          const Tensors mean = oracle.step(step, all_gradients(small_model(), group.size(), step));
          for (size_t i = 0; i < mean.size(); ++i)
            EXPECT_TRUE(same_bits(side.values[i], mean[i]))
                << options.codec << ", tensor " << i << ", rank " << group.rank() << ", step "
                << step;
        }
      });
}

// A NaN in a tensor of one rule skips the step of all, which then never happened.
TEST_P(ExchangeRules, AStepCountsForAllSectionsOrForNone) {
  for (const ExchangeOptions& options : ruled())
    on_ranks(GetParam(), [&](Group& group) {
      Side side(group, small_model(), options);
      side.step(0);
      const StateArrays before = side.store().save();
      side.values = gradients(small_model(), group.rank(), 1);
      const int culprit = group.size() - 1;
      if (group.rank() == culprit) side.values[0][5] = NAN;  // conv.weight
      for (size_t i = small_model().size(); i-- > 0;) side.start(i);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.rank, culprit);
      EXPECT_THAT(report.fault.stream, ::testing::HasSubstr("conv.weight"));
      for (const Values& tensor : side.values)
        for (const float value : tensor) EXPECT_EQ(value, 0);
      EXPECT_TRUE(same_state(side.store().save(), before));
    });
}

// All ranks send what as many exchanges would send, but for the agreement at the end, which is
// there once.
TEST_P(ExchangeRules, TheRanksAgreeOnceAStep) {
  for (const ExchangeOptions& options : ruled())
    on_ranks(GetParam(), [&](Group& group) {
      const Sections sections = resolve_sections(options, small_model(), 0).value();
      uint64_t agreement = 0;
      while (uint64_t{1} << agreement < static_cast<uint64_t>(group.size())) ++agreement;
      agreement *= 16;
      uint64_t apart = 0;
      for (const Section& section : sections.used) {
        std::vector<TensorSpec> own;
        for (const size_t tensor : section.tensors) own.push_back(small_model()[tensor]);
        Side side(group, own, section.options);
        const StepReport report = side.step(0);
        apart += report.sent_bytes - agreement;
      }
      Side side(group, small_model(), options);
      const StepReport report = side.step(0);
      // Owners differ, as tensors have other numbers in an exchange of their own: in all, not by
      // rank.
      std::vector<uint64_t> mine{report.sent_bytes - agreement, apart};
      std::vector<uint64_t> all(2 * static_cast<size_t>(group.size()));
      group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
      uint64_t together = 0, separately = 0;
      for (size_t rank = 0; rank < all.size() / 2; ++rank) {
        together += all[2 * rank];
        separately += all[2 * rank + 1];
      }
      EXPECT_EQ(together, separately) << options.codec;
    });
}

}  // namespace
}  // namespace thinwire::testing
