// measured_timeline: training steps of one rank, with a clock in the hooks of parameters.
// SPDX-License-Identifier: Apache-2.0
#include "train/unshared_steps.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/recipe_plan.h"
#include "train/data/data_sets.h"
#include "train/describe.h"
#include "train/elapsed_time.h"
#include "train/evaluate.h"
#include "train/models/models.h"
#include "train/optimizer.h"
#include "train/recipe_parts.h"
#include "train/step_taker.h"
#include "train/thread_count.h"

namespace thinwire {
namespace {

// Notes when the gradient is complete; of several passes of a step the last one stays.
class NotingHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  NotingHook(const ElapsedTime& clock, double& seconds) : clock_(clock), seconds_(seconds) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override {
    seconds_ = clock_.seconds();
  }

 private:
  const ElapsedTime& clock_;
  double& seconds_;
};

// Steps without an exchange.
class UnsharedSteps final : public StepTaker {
 public:
  explicit UnsharedSteps(const TrainingContext& context)
      : StepTaker(context), parameters_(trainable_parameters(*context.task.module)) {
    timeline_.ready_seconds.resize(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      timeline_.tensors.push_back(parameters_[i].spec);
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameters_[i].tensor, std::make_unique<NotingHook>(clock_, timeline_.ready_seconds[i]));
    }
  }
  ~UnsharedSteps() override {
    for (const TrainableParameter& parameter : parameters_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }

  StepOutcome take(uint64_t step) override {
    StepOutcome outcome;
    clock_ = ElapsedTime();
    begin(step, outcome);
    backward(step, MeanOver::kWholeBatch, outcome);
    timeline_.backward_seconds = clock_.seconds();
    end(false, outcome);
    timeline_.compute_seconds = clock_.seconds();
    return outcome;
  }
  const std::vector<StreamSpec>& streams() const override { return none_; }
  void show_common() override {}
  void show_own() override {}

  // Of the latest step. A parameter without a gradient is ready when the backward pass ends.
  StepTimeline timeline() const {
    StepTimeline latest = timeline_;
    for (double& seconds : latest.ready_seconds)
      if (seconds == 0) seconds = latest.backward_seconds;
    return latest;
  }

 private:
  const std::vector<TrainableParameter> parameters_;
  const std::vector<StreamSpec> none_;
  ElapsedTime clock_;
  StepTimeline timeline_;
};

// The recipe with the batch of one rank.
Options with_own_batch(const Options& recipe, int ranks) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const OptionInfo& key : recipe_keys()) {
    std::string value = recipe.canonical(key.name);
    if (key.name == "train.batch")
      value = std::to_string(std::max<int64_t>(1, recipe.integer("train.batch") / ranks));
    all.emplace_back(key.name, value);
  }
  return parse_options("plan", recipe_keys(), all).value();
}

void require_whole_network(const Options& recipe) {
  if (recipe.integer("pipeline.stages") > 0)
    throw Error(ErrorCode::kBadOption,
                "plan: pipeline.stages: the network is cut into stages, which have timelines of "
                "their own (recipe_pipeline)");
  if (recipe.text("run.device") != "cpu")
    throw Error(ErrorCode::kBadOption, "plan: run.device: steps on a GPU are not measured");
}

template <typename Time>
double median_of(const std::vector<StepTimeline>& steps, const Time& time) {
  std::vector<double> times;
  for (const StepTimeline& step : steps) times.push_back(time(step));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

StepTimeline median_of(const std::vector<StepTimeline>& steps) {
  StepTimeline median{.tensors = steps.front().tensors, .ready_seconds = {}};
  median.backward_seconds = median_of(steps, [](const auto& one) { return one.backward_seconds; });
  median.compute_seconds = median_of(steps, [](const auto& one) { return one.compute_seconds; });
  for (size_t i = 0; i < median.tensors.size(); ++i)
    median.ready_seconds.push_back(
        std::min(median.backward_seconds,
                 median_of(steps, [i](const auto& one) { return one.ready_seconds[i]; })));
  return median;
}

}  // namespace

StepTimeline measured_timeline(const Options& recipe, Task given, const TaskData& data, int ranks,
                               int steps) {
  require_whole_network(recipe);
  const Task task = with_defaults(std::move(given));
  if (steps == 0) {
    const std::vector<TensorSpec> tensors = describe_parameters(*task.module);
    return {.tensors = tensors, .ready_seconds = std::vector<double>(tensors.size())};
  }
  const Options own = with_own_batch(recipe, ranks);
  std::vector<StepTimeline> taken;
  run_local(1, [&](Group& group) {
    const ThreadCount threads(threads_of(own, group));
    const Timetable timetable = make_timetable(own, data.train.size());
    OwnBuffers buffers(*task.module);
    const auto optimizer = make_optimizer(own, *task.module, timetable.steps_per_epoch);
    task.module->train();
    UnsharedSteps taker({.recipe = own,
                         .timetable = timetable,
                         .group = group,
                         .task = task,
                         .data = data.train,
                         .buffers = buffers,
                         .optimizer = *optimizer});
    constexpr int kUncounted = 2;  // which allocate
    for (int step = 0; step < kUncounted + steps; ++step) {
      taker.take(static_cast<uint64_t>(step) % std::max<uint64_t>(1, timetable.steps));
      if (step >= kUncounted) taken.push_back(taker.timeline());
    }
  });
  return median_of(taken);
}

StepTimeline recipe_timeline(const Recipe& recipe, const RunPlaces& places, int ranks, int steps) {
  require_whole_network(recipe.options);
  const DataSplits data = make_data_set(data_request(recipe.options, places.data));
  return measured_timeline(recipe.options, make_model(model_options(recipe.options), data.shape),
                           {.train = *data.train, .test = *data.test}, ranks, steps);
}

ExchangeOptions recipe_exchange(const Recipe& recipe) { return exchange_options(recipe.options); }

SynchroniserOptions recipe_synchroniser(const Recipe& recipe) {
  return synchroniser_options(recipe.options);
}

}  // namespace thinwire
