// Tests that both sides of a cut have the same auxiliary variables, whatever is compressed, skipped
// or resumed.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "train/pipeline/decoupled_testing.h"
#include "train/temporary_folder.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class DecoupledBy : public ::testing::TestWithParam<Settings> {
 protected:
  static Settings settings() {
    return decoupled(4, with({{"train.drop_last", "true"},
                              {"train.epochs", "5"},
                              {"optimizer.momentum", "0.9"},
                              {"pipeline.serial_every", "3"}},
                             GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(
    Codecs, DecoupledBy,
    ::testing::Values(Settings{},
                      Settings{{"pipeline.forward", "uniform:bits=4"},
                               {"pipeline.backward", "uniform:bits=8"}},
                      Settings{{"pipeline.forward", "qsgd"}, {"pipeline.auxiliary_rate", "0.3"}},
                      Settings{{"pipeline.forward", "topk:density=0.25"},
                               {"pipeline.backward", "topk:density=0.5"},
                               {"pipeline.forward_memory", "ef"},
                               {"pipeline.backward_memory", "efmixed:density=0.5"}},
                      Settings{{"pipeline.forward", "topk:density=0.25"},
                               {"pipeline.backward", "uniform:bits=4"},
                               {"pipeline.forward_memory", "ef21"},
                               {"pipeline.backward_memory", "ef21"}},
                      Settings{{"pipeline.forward", "uniform:bits=2"},
                               {"pipeline.forward_memory", "aqsgd:cache=fp16"},
                               {"pipeline.cache_budget_mb", "0.002"}},  // a third of a cache
                      Settings{{"pipeline.forward", "topk:density=0.25"},
                               {"train.fixed_batches", "true"},
                               {"pipeline.warmup", "1"},
                               {"pipeline.forward_memory", "aqsgd:key=batch"}},
                      Settings{{"pipeline.forward", "fp32 | 1: topk:density=linear(0.5;0.25;3)"},
                               {"pipeline.warmup_steps", "6"}},
                      Settings{{"pipeline.cut", "first, second, third"},
                               {"pipeline.autoencoder", "4x / none / 5"},
                               {"pipeline.forward", "fp16"}}));

TEST_P(DecoupledBy, BothSidesOfACutHaveTheSameBits) {
  const TemporaryFolder folder;
  const StagedOptions options{.settings = settings(),
                              .places = {.data = {}, .out = folder / "run", .resume = {}}};
  const StagedResult result = run_staged(4, options);
  EXPECT_TRUE(result.pipelines.back().penalty);
  const char* layers[] = {"first", "second", "third"};
  for (size_t cut = 0; cut < 3; ++cut) {
    const auto saved = variables_of(folder / "run", 4, layers[cut]);
    EXPECT_FALSE(saved[cut].empty());
    EXPECT_GE(lambdas_of(saved[cut]).size(), 80u);
    EXPECT_EQ(saved[cut], saved[cut + 1]) << layers[cut];
  }
  StagedOptions again = options;
  again.places = {};
  EXPECT_TRUE(same_bits(run_staged(4, again).weights, result.weights));
}

// Stopped in a serial epoch, in a decoupled one, and between two.
TEST_P(DecoupledBy, ResumesBitForBit) {
  StagedOptions options{.settings = settings(), .normed = true};
  const StagedResult whole = run_staged(4, options);
  for (const uint64_t after : {2, 6, 8, 13}) {
    const TemporaryFolder folder;
    options.places = {.data = {}, .out = folder / "run", .resume = {}};
    options.stop_after = after;
    run_staged(4, options);
    options.stop_after = UINT64_MAX;
    options.places.resume = options.places.out;
    const StagedResult resumed = run_staged(4, options);
    EXPECT_TRUE(same_bits(resumed.weights, whole.weights)) << after;
    EXPECT_EQ(resumed.summary.sent_bytes_per_step, whole.summary.sent_bytes_per_step);
  }
}

TEST(DecoupledState, WithoutSavedCachesResumesWithSerialSteps) {
  const TemporaryFolder folder;
  StagedOptions options{.settings = decoupled(2, {{"train.epochs", "6"},
                                                  {"pipeline.save_caches", "false"},
                                                  {"train.fixed_batches", "true"}}),
                        .places = {.data = {}, .out = folder / "run", .resume = {}},
                        .stop_after = 12};  // of five steps an epoch
  EXPECT_TRUE(run_staged(2, options).pipelines.back().penalty);
  options.stop_after = UINT64_MAX;
  options.places.resume = options.places.out;
  const StagedResult resumed = run_staged(2, options);
  const Options recipe = toy_recipe(options.settings).options;
  Sampler sampler(recipe, make_timetable(recipe, 90));
  std::set<uint64_t> visited;
  ASSERT_THAT(resumed.pipelines, SizeIs(18));
  for (size_t i = 0; i < resumed.pipelines.size(); ++i)
    EXPECT_EQ(resumed.pipelines[i].penalty.has_value(),
              !visited.insert(sampler.batch_id(12 + i)).second);
}

// Multiplies what comes out of `layer`, or the loss, by a large or an infinite factor on one rank:
// in the second micro-batch of a step, which is the second one of the third epoch unless another
// one is given.
constexpr size_t kSpoiled = 9;
StagedResult spoiled(StagedOptions options, int at_rank, std::optional<size_t> layer,
                     float factor = std::numeric_limits<float>::infinity(),
                     size_t step = kSpoiled) {
  options.change = [=](int rank, Task& task) {
    if (rank != at_rank) return;
    const auto calls = std::make_shared<int>(0);
    const auto spoil = [=](const torch::Tensor& x) {
      if (!torch::GradMode::is_enabled()) return x;  // a test
      return static_cast<size_t>((*calls)++) == 2 * step + 1 ? x * factor : x;
    };
    if (layer)
      task.layers[*layer].forward = [spoil, inner = task.layers[*layer].forward](
                                        const torch::Tensor& x) { return spoil(inner(x)); };
    else
      task.loss = [spoil](const torch::Tensor& x, const torch::Tensor& targets) {
        return spoil(torch::nn::functional::cross_entropy(x, targets));
      };
  };
  return run_staged(4, options);
}

TEST_P(DecoupledBy, AStepThatIsNotFiniteLeavesNoTrace) {
  const TemporaryFolder folder;
  StagedOptions options{.settings = settings(),
                        .places = {.data = {}, .out = folder / "run", .resume = {}},
                        .normed = true};
  const StagedResult plain = run_staged(4, {.settings = settings(), .normed = true});
  const StagedResult loss = spoiled(options, 3, std::nullopt);
  const auto variables = variables_of(folder / "run", 4, "second");
  EXPECT_EQ(variables[1], variables[2]);
  EXPECT_THAT(loss.notes, Contains(HasSubstr("of stage 3")));
  EXPECT_TRUE(loss.pipelines[kSpoiled].penalty);
  for (const size_t layer : {size_t{0}, size_t{2}}) {
    const TemporaryFolder other;
    options.places.out = other / "run";
    const StagedResult result = spoiled(options, static_cast<int>(layer), layer);
    EXPECT_THAT(result.notes,
                Contains(HasSubstr("activations of stage " + std::to_string(layer) + "'")));
    EXPECT_EQ(result.summary.skipped_steps, 1u);
    EXPECT_TRUE(same_bits(result.weights, loss.weights));
    EXPECT_FALSE(same_bits(result.weights, plain.weights));
    EXPECT_EQ(variables_of(other / "run", 4, "second"), variables);
  }
}

// The gradients are large and finite; divided by beta they are not. It is the first decoupled
// visit: such a small penalty lets variables go so far that the loss of the next one has no
// gradient.
TEST(DecoupledState, VariablesThatWouldNotBeFiniteSkipTheStep) {
  const StagedOptions options{.settings = decoupled(4, {{"train.drop_last", "true"},
                                                        {"optimizer.lr", "1e-30"},
                                                        {"train.fixed_batches", "true"},
                                                        {"pipeline.penalty", "1e-9"}})};
  const StagedResult result = spoiled(options, 3, std::nullopt, 1e33f, 5);
  EXPECT_EQ(result.summary.skipped_steps, 1u);
  EXPECT_THAT(result.notes, Contains(HasSubstr("auxiliary variables of stage 2")));
  EXPECT_TRUE(result.pipelines.back().penalty);
}

}  // namespace
}  // namespace thinwire
