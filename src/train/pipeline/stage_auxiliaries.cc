// StageAuxiliaries: reads variables into tensors, and hands what crossed to their rule.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_auxiliaries.h"

#include <string>

#include "train/pipeline/boundary_counters.h"
#include "train/tensor_floats.h"

namespace thinwire {

StageAuxiliaries::StageAuxiliaries(const PipelineOptions& options, const StagePlan& plan,
                                   const Task& task, Store& store)
    : beta_(options.decoupling->penalty) {
  const auto open = [&](size_t number, Cut& cut) {
    cut.shape.assign(plan.crossing[number].begin(), plan.crossing[number].end());
    const std::string name = plan.cut_name(task, number);
    const auto make = [&] {
      return std::make_unique<AuxiliaryVariables>(
          AuxiliaryForm{.name = name,
                        .count = count_of(plan.crossing[number]),
                        .penalty = options.decoupling->penalty,
                        .rate = options.decoupling->rate,
                        .budget = options.cache_budget,
                        .folder = options.spill_folder});
    };
    if (options.save_caches) {
      cut.variables = &store.open<AuxiliaryVariables>("pipeline/" + name + "/auxiliary", make);
    } else {
      own_.push_back(make());
      cut.variables = own_.back().get();
    }
  };
  if (!plan.is_first()) open(plan.stage - 1, before_);
  if (!plan.is_last()) open(plan.stage, after_);
}

void StageAuxiliaries::each(const auto& visit) {
  for (Cut* cut : {&before_, &after_})
    if (cut->variables != nullptr) visit(*cut->variables);
}

// Cuts change in the same steps, and by the same samples.
bool StageAuxiliaries::hold(std::span<const uint64_t> ids) const {
  return (before_.variables != nullptr ? before_ : after_).variables->hold(ids);
}

torch::Tensor StageAuxiliaries::Cut::read(std::span<const uint64_t> ids) const {
  std::vector<int64_t> extents = shape;
  extents.insert(extents.begin(), static_cast<int64_t>(ids.size()));
  torch::Tensor values = torch::empty(extents);
  variables->read(ids, floats_of(values));
  return values;
}

torch::Tensor StageAuxiliaries::inputs(std::span<const uint64_t> ids) const {
  return before_.read(ids);
}

StageAuxiliaries::Penalty StageAuxiliaries::penalty(const torch::Tensor& outputs,
                                                    std::span<const uint64_t> ids,
                                                    double share) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor distance = outputs - after_.read(ids);
  const double squares = distance.square().sum(torch::kFloat64).item<double>();
  return {.sum = beta_ / 2 * squares, .gradient = distance.mul_(beta_ * share)};
}

bool StageAuxiliaries::stage(const PipelineStep& step) {
  const bool before = stage(step, step.before, before_), after = stage(step, step.after, after_);
  return before && after;
}

bool StageAuxiliaries::stage(const PipelineStep& step, const std::vector<Crossed>& crossed,
                             Cut& cut) {
  if (cut.variables == nullptr) return true;
  bool finite = true;
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const auto ids = step.visit(i).ids;
    const auto activations = floats_of(crossed[i].activations);
    if (!step.decoupled)
      cut.variables->set(ids, activations);
    else if (!cut.variables->change(ids, activations, floats_of(crossed[i].gradients), step.share))
      finite = false;
  }
  return finite;
}

void StageAuxiliaries::commit() {
  each([](AuxiliaryVariables& variables) { variables.commit(); });
}

void StageAuxiliaries::rollback() {
  each([](AuxiliaryVariables& variables) { variables.rollback(); });
}

}  // namespace thinwire
