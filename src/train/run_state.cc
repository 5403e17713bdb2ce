// Makes the parts of a rank's training in their order.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_state.h"

#include <optional>
#include <string_view>
#include <utility>

#include "exchange/levels/holders.h"
#include "train/attack.h"
#include "train/broadcast_weights.h"
#include "train/named_tensors.h"
#include "train/optimizer.h"
#include "train/pipeline/pipeline_steps.h"
#include "train/recipe_parts.h"
#include "train/second_moments.h"
#include "train/tensor/tensor_steps.h"

namespace thinwire {

void RunState::load(Checkpoint saved, Group& group, int inside, const std::string& folder) {
  together(group, [&] {
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& weight : named_weights(*task_.module))
      if (const Status status = from_state(saved.model, weight); !status)
        throw Error(status.code(), folder + ": model: " + status.message());
    check_groups(inside, group.size());
    if (const Status status = store_.load(saved.ranks, group.rank(), group.size(), inside); !status)
      throw Error(status.code(), folder + ": " + status.message());
  });
  saved_optimizer_ = std::move(saved.optimizer);
}

// Weights are broadcast before buffers are opened, which a loaded state may change.
void RunState::start(const Options& recipe, const PipelineOptions& pipeline,
                     const TensorParallelOptions& tensor, const Timetable& timetable,
                     const TaskData& data, Group& group, uint64_t first_step,
                     SignalRecorder* recorder, const Entry& entry) {
  const bool local = !recipe.text("sync.method").empty();
  if (local && recipe.integer("run.record_every") > 0)
    throw AgreedError(ErrorCode::kBadOption,
                      "run.record_every: workers that step by themselves encode no gradients");
  for (const RecipeFault& fault : find_faults(recipe))  // callers' own tasks are not checked before
    if (fault.key == "exchange.flush" || fault.key == "optimizer.second_moment")
      throw AgreedError(fault.status.code(), fault.key + ": " + fault.status.message());
  ExchangeOptions options = exchange_options(recipe);
  options.steps_per_epoch = timetable.steps_per_epoch;
  options.first_step = first_step;
  options.generation = entry.generation;
  options.debts = entry.generation > 0;
  options.device = device_.memory();
  if (recorder != nullptr)
    options.observe = [recorder](const StreamSpec& stream, const Signal& signal, const Call& call) {
      recorder->observe(stream, signal, call);
    };
  if (local || pipeline.stages > 0 || tensor.ranks > 0) {
    broadcast_weights(*task_.module, group);
  } else if (entry.joins != nullptr) {
    parallel_.reset();  // of an earlier call that failed
    parallel_ = std::make_unique<DataParallel>(*task_.module, group, store_, options, *entry.joins);
  } else {
    attacking_ = attacking_group(recipe, group);
    parallel_ = std::make_unique<DataParallel>(
        *task_.module, attacking_ != nullptr ? *attacking_ : group, store_, options);
  }
  buffers_ = &store_.open<OwnBuffers>("module/buffers",
                                      [&] { return std::make_unique<OwnBuffers>(*task_.module); });
  std::optional<TensorPlan> plan;
  if (tensor.ranks > 0) {
    plan = plan_tensors(tensor, group, task_);
    parts_ = std::make_unique<RankParts>(*plan, task_);
  }
  optimizer_ =
      make_optimizer(recipe, parts_ ? parts_->module() : *task_.module, timetable.steps_per_epoch);
  load_optimizer(*optimizer_, *task_.module, saved_optimizer_).or_throw();
  saved_optimizer_.clear();

  const TrainingContext context{.recipe = recipe,
                                .timetable = timetable,
                                .group = group,
                                .task = task_,
                                .data = data.train,
                                .buffers = *buffers_,
                                .optimizer = *optimizer_,
                                .hold_out = data.hold_out};
  if (local) {
    auto steps = std::make_unique<LocalSteps>(context, store_, synchroniser_options(recipe));
    local_ = steps.get();
    taker_ = std::move(steps);
  } else if (pipeline.stages > 0) {
    taker_ = std::make_unique<PipelineSteps>(context, pipeline, options, store_, first_step);
  } else if (plan) {
    taker_ =
        std::make_unique<TensorSteps>(context, tensor, *plan, *parts_, options, store_, first_step);
  } else {
    if (entry.joins == nullptr) parallel_->exchange().set_step(first_step);
    SecondMoments* moments = nullptr;
    if (second_moments_of_ranks(recipe))
      moments = &store_.open<SecondMoments>("optimizer/second_moments", [&] {
        return std::make_unique<SecondMoments>(trainable_parameters(*task_.module),
                                               recipe.number("optimizer.beta2"));
      });
    auto steps = std::make_unique<SharedSteps>(context, *parallel_, moments, store_);
    shared_ = steps.get();
    taker_ = std::move(steps);
  }
}

namespace {

constexpr std::string_view kModelKey = "model/", kOptimizerKey = "optimizer/";

// Those below `key`, without it.
StateArrays below(const StateArrays& arrays, std::string_view key) {
  StateArrays found;
  for (const StateArray& array : arrays) {
    if (!array.name.starts_with(key)) continue;
    found.push_back(array);
    found.back().name.erase(0, key.size());
  }
  return found;
}

}  // namespace

StateArrays RunState::common() const {
  StateArrays arrays;
  const auto add = [&](std::string_view key, StateArray array) {
    array.name.insert(0, key);
    arrays.push_back(std::move(array));
  };
  for (const NamedTensor& weight : named_weights(*task_.module))
    add(kModelKey, to_state(weight, OnResize::kCopy));
  for (StateArray& array : save_optimizer(*optimizer_, *task_.module))
    add(kOptimizerKey, std::move(array));
  return arrays;
}

void RunState::take_common(const StateArrays& arrays) {
  const torch::NoGradGuard no_grad;
  const StateArrays model = below(arrays, kModelKey);
  for (const NamedTensor& weight : named_weights(*task_.module))
    from_state(model, weight).or_throw();
  optimizer_->state().clear();
  load_optimizer(*optimizer_, *task_.module, below(arrays, kOptimizerKey)).or_throw();
  optimizer_->zero_grad();
}

// For users of the weights: what is common. For resuming, each rank has its own in the store.
void RunState::save(Checkpoint& to, bool with_weights, const std::function<void()>& with_common) {
  to.ranks = {store_.save()};
  taker_->show_common();
  if (with_weights) {
    for (const NamedTensor& weight : named_weights(*task_.module))
      to.model.push_back(to_state(weight, OnResize::kCopy));
    if (!taker_->keeps_optimizer()) to.optimizer = save_optimizer(*optimizer_, *task_.module);
  }
  if (with_common) with_common();
  taker_->show_own();
}

}  // namespace thinwire
