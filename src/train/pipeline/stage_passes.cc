// Micro-batch after micro-batch, each through this stage's layers.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_passes.h"

#include <torch/torch.h>

#include <limits>
#include <utility>

#include "train/draw_context.h"
#include "train/sequence.h"

namespace thinwire {

void StagePasses::run(PipelineStep& step, StepOutcome& outcome) {
  const ElapsedTime watch;
  const PipelineOrder order = step.decoupled ? PipelineOrder::kDecoupled : order_;
  const auto operations =
      step.parts.empty() ? std::vector<PipelineOp>()
                         : stage_operations(order, plan_.stages, plan_.stage, step.parts.size());
  if (auxiliaries_ != nullptr) {
    if (!plan_.is_first()) step.before.resize(step.parts.size());
    if (!plan_.is_last()) step.after.resize(step.parts.size());
  }
  const StageWays& ways = boundaries_.ways(step.warming_up);
  for (const PipelineOp& op : operations) {
    const Visit visit = step.visit(op.micro_batch);
    if (!op.backward && !plan_.is_first())
      step.activations.push_back(links_->receive_activations(ways.activations_in, visit));
    if (op.backward && !plan_.is_last())
      step.gradients.push_back(links_->receive_gradients(ways.gradients_in, visit));
  }
  for (const PipelineOp& op : operations)
    op.backward ? backward(step, op.micro_batch, outcome) : forward(step, op.micro_batch, outcome);
  if (step.decoupled) take_what_came(step);

  const ElapsedTime sending;
  step.spoiled.activations = !step.collect(step.activations_out, false);
  step.spoiled.gradients = !step.collect(step.gradients_out, true);
  step.counters.wait += sending.seconds();
  if (auxiliaries_ != nullptr) step.spoiled.auxiliary = !auxiliaries_->stage(step);
  step.counters.seconds = watch.seconds();
  outcome.samples = step.mine.size;
}

void StagePasses::forward(PipelineStep& step, size_t micro_batch, StepOutcome& outcome) {
  const SampleRange part = step.parts[micro_batch];
  const Visit visit = step.visit(micro_batch);
  Passing& passing = step.passing[micro_batch];
  Batch batch;
  if (plan_.is_first() || plan_.is_last()) {
    const ElapsedTime fetching;
    batch = context_.data.fetch(visit.ids, step.fetching_for);
    outcome.times.fetch += fetching.seconds();
  }
  passing.inputs = batch.inputs;
  if (!plan_.is_first()) passing.inputs = inputs_of(step, micro_batch).requires_grad_();

  const ElapsedTime computing;
  const DrawScope draws({.seed = seed_,
                         .step = step.number,
                         .first = step.mine.begin - step.whole.begin + part.begin,
                         .rows = part.size});
  torch::Tensor x = passing.inputs;
  for (size_t i = plan_.begin(); i < plan_.end(); ++i) x = run_layer(context_.task.layers[i], i, x);
  if (plan_.is_last()) {
    x = context_.task.loss(x, batch.targets);
    const auto samples = static_cast<double>(part.size);
    step.counters.loss += x.item<double>() * samples;
    step.counters.samples += part.size;
    const double weight =
        samples * static_cast<double>(plan_.replicas) / static_cast<double>(step.whole.size);
    if (weight != 1) x = x * weight;
  }
  passing.outputs = x;
  outcome.times.compute += computing.seconds();
  if (!plan_.is_last())
    step.activations_out.push_back(links_->send_activations(
        boundaries_.ways(step.warming_up).activations_out, x.detach().contiguous(), visit));
}

// What this stage computes with: what came, or what stands for it.
torch::Tensor StagePasses::inputs_of(PipelineStep& step, size_t micro_batch) {
  if (step.decoupled) return auxiliaries_->inputs(step.visit(micro_batch).ids);
  Arrived arrived = step.next(step.activations);
  step.passing[micro_batch].finite = arrived.finite;
  // Without the gradient, which the tensor is to get.
  if (!step.before.empty()) step.before[micro_batch].activations = arrived.values.detach();
  return std::move(arrived.values);
}

// Of the loss behind this stage, or of the penalty.
torch::Tensor StagePasses::gradient_of(PipelineStep& step, size_t micro_batch,
                                       const torch::Tensor& outputs) {
  if (!step.decoupled) return step.next(step.gradients).values;
  auto penalty = auxiliaries_->penalty(outputs, step.visit(micro_batch).ids, step.share);
  step.counters.penalty += penalty.sum;
  return std::move(penalty.gradient);
}

// In the order in which it was sent.
void StagePasses::take_what_came(PipelineStep& step) {
  for (size_t i = 0; i < step.parts.size(); ++i) {
    if (!plan_.is_first()) step.before[i].activations = step.next(step.activations).values;
    if (!plan_.is_last()) step.after[i].gradients = step.next(step.gradients).values;
  }
}

void StagePasses::backward(PipelineStep& step, size_t micro_batch, StepOutcome& outcome) {
  Passing passing = std::exchange(step.passing[micro_batch], {});
  torch::Tensor gradient;
  if (!plan_.is_last())
    gradient = gradient_of(step, micro_batch, passing.outputs.detach())
                   .contiguous(passing.outputs.suggest_memory_format());
  const ElapsedTime computing;
  // Without weights in front of it there is nothing to learn.
  if (passing.outputs.requires_grad()) passing.outputs.backward(gradient);
  outcome.times.compute += computing.seconds();
  if (plan_.is_first()) return;
  const torch::Tensor& inputs = passing.inputs;
  torch::Tensor back =
      inputs.grad().defined() ? inputs.grad().contiguous() : torch::zeros_like(inputs);
  // A layer may swallow what is not finite; the stage in front waits for its answer.
  if (!passing.finite) back.fill_(std::numeric_limits<float>::quiet_NaN());
  step.gradients_out.push_back(links_->send_gradients(
      boundaries_.ways(step.warming_up).gradients_out, std::move(back), step.visit(micro_batch)));
}

}  // namespace thinwire
