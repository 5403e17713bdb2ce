// Tests of decoupled stages: against plain loops, the synchronous schedule, and the other side of
// each cut.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "train/pipeline/decoupled_testing.h"
#include "train/pipeline/plain_stages.h"
#include "train/temporary_folder.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two stages of two layers each, and their variables.
struct PlainRun {
  PlainStage first, second;
  std::map<uint64_t, PlainVector> lambda;

  // One step as the class comment of AuxiliaryVariables has it, with gradients of the mean loss.
  void take(std::span<const uint64_t> ids, const ToyData& data, bool serial, double beta,
            double rho, double learning_rate) {
    const double share = 1 / static_cast<double>(ids.size());
    for (const uint64_t id : ids) {
      const Batch sample = data.fetch(std::span(&id, 1), {});
      PlainVector input(8);
      for (int64_t i = 0; i < 8; ++i)
        input[static_cast<size_t>(i)] = sample.inputs[0][i].item<double>();
      const auto target = static_cast<size_t>(sample.targets[0].item<int64_t>());

      const auto front = first.forward(input);
      const PlainVector x = front.back();
      const auto behind = second.forward(serial ? x : lambda.at(id));
      const PlainVector g =
          second.backward(behind, cross_entropy_gradient(behind.back(), target, share));
      PlainVector& own = lambda[id];
      if (serial) own = x;
      PlainVector pull(x.size());
      for (size_t i = 0; i < x.size(); ++i) pull[i] = share * beta * (x[i] - own[i]);
      first.backward(front, serial ? g : pull);
      if (serial) continue;
      for (size_t i = 0; i < x.size(); ++i)
        own[i] -= rho / beta * (g[i] / share + beta * (own[i] - x[i]));
    }
    first.step(learning_rate);
    second.step(learning_rate);
  }
};

PlainRun plain_run() {
  PlainRun run;
  const auto weights = staged_task().module->parameters();
  for (size_t layer = 0; layer < 4; ++layer)
    (layer < 2 ? run.first : run.second)
        .layers.emplace_back(weights[2 * layer], weights[2 * layer + 1], layer < 3);
  return run;
}

// A serial epoch of three steps, then two epochs whose steps are decoupled.
TEST(Decoupled, MatchesPlainLoops) {
  const TemporaryFolder folder;
  const Settings settings = decoupled(2, {{"pipeline.cut", "second"},
                                          {"pipeline.penalty", "0.5"},
                                          {"pipeline.auxiliary_rate", "0.75"}});
  const StagedResult result =
      run_staged(2, {.settings = settings,
                     .places = {.data = {}, .out = folder / "run", .resume = {}},
                     .samples = 60});
  ASSERT_THAT(result.pipelines, SizeIs(9));

  const Options recipe = toy_recipe(settings).options;
  const Timetable timetable = make_timetable(recipe, 60);
  Sampler sampler(recipe, timetable);
  const ToyData data(60);
  PlainRun plain = plain_run();
  for (uint64_t step = 0; step < 9; ++step) {
    const bool serial = step < 3;
    EXPECT_EQ(result.pipelines[step].penalty.has_value(), !serial);
    plain.take(sampler.ids(step, timetable.batch_of(step)), data, serial, 0.5, 0.75, 0.1);
  }
  for (size_t layer = 0; layer < 4; ++layer) {
    const PlainLayer& want = (layer < 2 ? plain.first : plain.second).layers[layer % 2];
    const torch::Tensor weight = result.weights[2 * layer], bias = result.weights[2 * layer + 1];
    for (int64_t i = 0; i < weight.numel(); ++i)
      EXPECT_NEAR(weight.view(-1)[i].item<double>(), want.weight()[static_cast<size_t>(i)], 2e-5);
    for (int64_t i = 0; i < bias.numel(); ++i)
      EXPECT_NEAR(bias[i].item<double>(), want.bias()[static_cast<size_t>(i)], 2e-5);
  }
  for (const SavedVariables& saved : variables_of(folder / "run", 2, "second")) {
    const auto lambdas = lambdas_of(saved);
    ASSERT_THAT(lambdas, SizeIs(60));
    for (const auto& [id, lambda] : lambdas)
      for (size_t i = 0; i < lambda.size(); ++i)
        EXPECT_NEAR(lambda[i], plain.lambda.at(id)[i], 1e-4) << id;
  }
}

TEST(Decoupled, OneStageIsOrdinaryTraining) {
  Settings settings = decoupled(1);
  const StagedResult one = run_staged(1, {.settings = settings});
  settings = changed(settings, {{"pipeline.schedule", "synchronous"}});
  EXPECT_TRUE(same_bits(one.weights, run_staged(1, {.settings = settings}).weights));
  for (const PipelineReport& step : one.pipelines) EXPECT_FALSE(step.penalty);
}

// Batches of 20, of which the last of an epoch has 10.
TEST(Decoupled, SerialEpochsHaveTheBitsOfTheSynchronousSchedule) {
  for (const char* order : {"1f1b", "fill-drain"}) {
    Settings settings = decoupled(3, {{"pipeline.order", order},
                                      {"pipeline.forward", "uniform:bits=4"},
                                      {"pipeline.backward", "topk:density=0.5"},
                                      {"optimizer.momentum", "0.9"},
                                      {"clip.norm", "0.5"}});
    const StagedResult synchronous = run_staged(
        3, {.settings = changed(settings, {{"pipeline.schedule", "synchronous"}}), .normed = true});
    settings.emplace_back("pipeline.serial_every", "1");
    const StagedResult serial = run_staged(3, {.settings = settings, .normed = true});
    EXPECT_TRUE(same_bits(serial.weights, synchronous.weights));
    EXPECT_EQ(serial.summary.sent_bytes_per_step, synchronous.summary.sent_bytes_per_step);
    settings.back().second = "2";  // the second of three is decoupled
    const StagedResult hybrid = run_staged(3, {.settings = settings, .normed = true});
    for (size_t step = 0; step < hybrid.steps.size(); ++step) {
      EXPECT_EQ(hybrid.pipelines[step].penalty.has_value(), step / 5 == 1) << step;
      if (step < 5) {
        EXPECT_EQ(hybrid.steps[step].loss, synchronous.steps[step].loss);
      }
    }
    EXPECT_FALSE(same_bits(hybrid.weights, synchronous.weights));
  }
}

// With weights that stay and batches that come again, activations are what they were.
TEST(Decoupled, WithoutDistanceThereIsNoPenalty) {
  const StagedResult result =
      run_staged(3, {.settings = decoupled(3, {{"optimizer.lr", "1e-30"},
                                               {"train.drop_last", "true"},
                                               {"train.fixed_batches", "true"},
                                               {"pipeline.penalty", "10"}})});
  ASSERT_THAT(result.pipelines, SizeIs(12));
  for (size_t step = 4; step < 8; ++step) EXPECT_EQ(result.pipelines[step].penalty, 0.0) << step;
  // Later variables are beta-ths of gradients away.
  for (size_t step = 8; step < 12; ++step) EXPECT_GT(result.pipelines[step].penalty, 0.0) << step;
}

TEST(Decoupled, SendsAsManyBytesAsTheSynchronousSchedule) {
  const Settings settings =
      decoupled(4, {{"pipeline.forward", "uniform:bits=4"}, {"pipeline.backward", "fp16"}});
  const StagedResult result = run_staged(4, {.settings = settings});
  const StagedResult synchronous =
      run_staged(4, {.settings = changed(settings, {{"pipeline.schedule", "synchronous"}})});
  EXPECT_EQ(result.summary.sent_bytes_per_step, synchronous.summary.sent_bytes_per_step);
  EXPECT_EQ(result.summary.codec_ratio, synchronous.summary.codec_ratio);
}

// Samples that the first epoch dropped come in later ones.
TEST(Decoupled, StepsWithASampleThatIsNewAreSerial) {
  const Settings settings =
      decoupled(3, {{"train.drop_last", "true"}, {"train.epochs", "4"}, {"train.batch", "17"}});
  const StagedResult result = run_staged(3, {.settings = settings});
  const Options recipe = toy_recipe(settings).options;
  const Timetable timetable = make_timetable(recipe, 90);
  Sampler sampler(recipe, timetable);
  std::set<uint64_t> visited;
  size_t serial = 0;
  for (uint64_t step = 0; step < timetable.steps; ++step) {
    const auto ids = sampler.ids(step, timetable.batch_of(step));
    const bool all_known =
        std::all_of(ids.begin(), ids.end(), [&](uint64_t id) { return visited.contains(id); });
    EXPECT_EQ(result.pipelines[step].penalty.has_value(), all_known) << step;
    serial += step >= timetable.steps_per_epoch && !all_known ? 1 : 0;
    visited.insert(ids.begin(), ids.end());
  }
  EXPECT_GT(serial, 0u);
}

// Each pipeline has the variables of its share of every batch, which are the same in every epoch.
TEST(Decoupled, PipelinesWithFixedBatchesShareThem) {
  const TemporaryFolder folder;
  Settings settings = decoupled(2, {{"pipeline.cut", "second"}, {"train.epochs", "4"}});
  try {
    run_staged(4, {.settings = settings});
    ADD_FAILURE() << "samples that move between pipelines";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadOption);
    EXPECT_THAT(error.what(), HasSubstr("pipeline.schedule: each of 2 pipelines has"));
    EXPECT_THAT(error.what(), HasSubstr("set train.fixed_batches"));
  }
  settings.emplace_back("train.fixed_batches", "true");
  const StagedResult one = run_staged(2, {.settings = settings});
  const StagedResult two = run_staged(
      4, {.settings = settings, .places = {.data = {}, .out = folder / "run", .resume = {}}});
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  for (size_t step = 5; step < 20; ++step) {
    ASSERT_TRUE(two.pipelines[step].penalty);
    EXPECT_NEAR(*two.pipelines[step].penalty, *one.pipelines[step].penalty, 1e-5);
  }
  const auto saved = variables_of(folder / "run", 4, "second");
  EXPECT_EQ(saved[0], saved[1]);
  EXPECT_EQ(saved[2], saved[3]);
  EXPECT_EQ(lambdas_of(saved[0]).size() + lambdas_of(saved[2]).size(), 90u);
}

// The first epoch is the only serial one.
TEST(Decoupled, Learns) {
  for (const char* codec : {"fp32", "uniform:bits=4"}) {
    const StagedResult result =
        run_staged(2, {.settings = changed(decoupled(2), {{"train.epochs", "12"},
                                                          {"train.evaluate_every", "1"},
                                                          {"pipeline.forward", codec},
                                                          {"optimizer.momentum", "0.9"},
                                                          {"optimizer.lr", "0.01"}}),
                       .samples = 400});
    EXPECT_GT(result.tests.front().error, 0.3) << codec;
    EXPECT_LT(result.summary.final_test_error, 0.2) << codec;
  }
}

// Two stages that take as long as each other, and no micro-batches: in serial steps each is idle
// half of the time. Other work on the machine adds to the time in which neither is.
TEST(Decoupled, StagesDoNotWaitForEachOther) {
  StagedOptions options{
      .settings = decoupled(
          2, {{"pipeline.cut", "second"}, {"train.micro_batches", "1"}, {"train.epochs", "2"}}),
      .samples = 60};
  options.change = [](int, Task& task) {
    for (const size_t layer : {size_t{1}, size_t{3}})
      task.layers[layer].forward = [inner = task.layers[layer].forward](const torch::Tensor& x) {
        std::this_thread::sleep_for(std::chrono::milliseconds(80));
        return inner(x);
      };
  };
  const StagedResult result = run_staged(2, options);
  double in_serial = 0, in_decoupled = 0;
  for (size_t step = 0; step < 3; ++step) {
    in_serial += result.pipelines[step].idle_share / 3;
    in_decoupled += result.pipelines[step + 3].idle_share / 3;
  }
  EXPECT_LT(in_decoupled, 0.7 * in_serial);
}

// Notes for which epochs samples were augmented.
class NotingData final : public Dataset {
 public:
  explicit NotingData(uint64_t size) : data_(size) {}
  uint64_t size() const override { return data_.size(); }
  Batch fetch(std::span<const uint64_t> ids, const FetchContext& context) const override {
    const std::lock_guard lock(mutex_);
    if (context.training) epochs_.push_back(context.epoch);
    return data_.fetch(ids, context);
  }
  std::vector<uint64_t> epochs() const { return epochs_; }

 private:
  ToyData data_;
  mutable std::mutex mutex_;
  mutable std::vector<uint64_t> epochs_;
};

TEST(Decoupled, SamplesLookAsInTheLastSerialEpoch) {
  const NotingData train(40);
  const ToyData test(53, 1);
  const Settings settings = decoupled(2, {{"train.epochs", "6"},
                                          {"train.micro_batches", "1"},
                                          {"pipeline.cut", "second"},
                                          {"pipeline.serial_every", "2"}});
  run_small(2, [&](Group& group) {
    return train_small(group, StagedOptions{.settings = settings}, staged_task(),
                       {.train = train, .test = test});
  });
  // Two steps of an epoch on two stages; in front of them the shapes of what crosses were looked
  // for.
  const std::vector<uint64_t> all = train.epochs();
  const std::vector<uint64_t> last(all.end() - 24, all.end());
  for (size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i], i / 8 * 2) << i;
}

TEST(Decoupled, FindsFaultsInARecipe) {
  const auto fault = [](const Settings& settings) {
    const auto found = find_faults(toy_recipe(settings).options);
    return found.empty() ? "" : found.front().key + ": " + found.front().status.message();
  };
  EXPECT_EQ(fault(decoupled(4)), "");
  EXPECT_THAT(fault({{"pipeline.schedule", "decoupled"}}),
              HasSubstr("pipeline.schedule: there are no stages to decouple; set pipeline.stages"));
  EXPECT_THAT(
      fault(decoupled(2, {{"pipeline.shared_positions", "true"}, {"pipeline.forward", "topk"}})),
      HasSubstr("pipeline.schedule: decoupled stages send gradients before they know"));
  const Settings dropping = decoupled(2, {{"model.dropout", "0.1"}});
  EXPECT_THAT(fault(dropping), HasSubstr("choose model.dropout = 0, or pipeline.schedule = "
                                         "synchronous"));
  EXPECT_EQ(fault(with(dropping, {{"pipeline.augmented_ids", "true"}})), "");
  EXPECT_EQ(fault(decoupled(2, {{"data.name", "cifar10"}, {"data.augment", "true"}})), "");
}

}  // namespace
}  // namespace thinwire
