// LocalSteps: a worker's own backward pass and step, followed by the synchroniser.
// SPDX-License-Identifier: Apache-2.0
#include "train/local_steps.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sync/member_group.h"
#include "thinwire/survived.h"
#include "train/evaluate.h"
#include "train/finite_gradients.h"
#include "train/named_tensors.h"
#include "train/norm_statistics.h"

namespace thinwire {
namespace {

// What ranks of a dense exchange send: 2 (n-1)/n of four bytes per value, rounded down.
uint64_t dense_exchange_bytes(uint64_t values, int ranks) {
  return 8 * values * static_cast<uint64_t>(ranks - 1) / static_cast<uint64_t>(ranks);
}

}  // namespace

LocalSteps::LocalSteps(const TrainingContext& context, Store& store,
                       const SynchroniserOptions& options)
    : StepTaker(context),
      group_(&context.group),
      tensors_(describe_parameters(*context.task.module)),
      max_bad_(options.max_skipped) {
  AlignedVector<float> start;
  worker_ = &store.open<OwnWorker>("worker", [&] {
    auto worker = std::make_unique<OwnWorker>(*context.task.module, context.optimizer);
    const std::span<const float> weights = worker->weights();
    start.assign(weights.begin(), weights.end());  // before a state is loaded
    return worker;
  });
  sync_ = make_synchroniser(context.group, store, tensors_, start, with_judge(options));
  if (sync_->adjusts_gradient()) gradient_.resize(start.size());
  streams_.push_back({.name = "weights", .tensors = tensors_});
  dense_bytes_ = dense_exchange_bytes(start.size(), context.group.size());
  // Whoever left early was not in the last rounds. A run that had ended stays so.
  if (asynchronous())
    over_ =
        context.group.max(static_cast<uint64_t>(worker_->common_steps)) >= context.timetable.steps;
}

SynchroniserOptions LocalSteps::with_judge(SynchroniserOptions options) const {
  const auto samples = static_cast<uint64_t>(context().recipe.integer("sync.judge_samples"));
  if (samples == 0) return options;
  if (context().hold_out == nullptr)
    throw AgreedError(ErrorCode::kBadOption, "sync.judge_samples: no samples are held out");
  const auto batch = static_cast<uint64_t>(context().recipe.integer("train.evaluate_batch"));
  // The module's weights are the parameters that the synchroniser was given.
  options.judge = [this, samples, batch](std::span<const float>) {
    return own_loss(context().task, *context().hold_out, samples, batch);
  };
  return options;
}

StepOutcome LocalSteps::take(uint64_t step) {
  try {
    return take_one(step);
  } catch (const SurvivedError&) {
    throw;
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const ErrorCode code = known != nullptr ? known->code() : ErrorCode::kContract;
    // What all throw, and the loss of the desk, are no failure of this worker.
    const bool own = dynamic_cast<const AgreedError*>(&error) == nullptr &&
                     code != ErrorCode::kPeerLost && code != ErrorCode::kTimeout;
    if (own && sync_->fail(error.what())) throw SurvivedError(code, error.what());
    throw;
  }
}

StepOutcome LocalSteps::take_one(uint64_t step) {
  common_.reset();
  StepOutcome outcome;
  begin(step, outcome);
  backward(step, MeanOver::kOwnPart, outcome);
  if (outcome.samples > 0) worker_->loss = outcome.loss;  // who had none is judged by the last
  if (sync_->adjusts_gradient()) adjust_gradients();
  const bool bad = !gradients_are_finite(*context().task.module);
  end(bad, outcome);

  StepReport& report = outcome.report;
  report.skipped = bad;
  report.dense_bytes = dense_bytes_;
  if (bad) {
    report.fault = {
        .code = ErrorCode::kNonFinite, .rank = context().group.rank(), .stream = "gradient"};
    if (++bad_ == max_bad_)
      throw Error(ErrorCode::kNonFinite, "rank " + std::to_string(context().group.rank()) + ": " +
                                             std::to_string(bad_) +
                                             " own gradients in a row are not finite");
  } else {
    bad_ = 0;
  }
  outcome.round =
      sync_->after_step(weights(), bad ? std::numeric_limits<double>::infinity() : worker_->loss);
  worker_->put_back();  // some rules move weights in steps without a round
  if (outcome.round) count(*outcome.round, outcome);
  worker_->steps = static_cast<int64_t>(step + 1);
  const auto ranks = static_cast<uint64_t>(context().group.size());
  if (asynchronous() && step + 1 >= context().timetable.steps * ranks) over_ = true;
  return outcome;
}

void LocalSteps::count(const RoundReport& round, StepOutcome& outcome) {
  if (round.global && !round.skipped && round.leader >= 0) worker_->leader = round.leader;
  StepReport& report = outcome.report;
  report.streams.resize(1);
  report.streams[0].values = round.values;
  report.streams[0].kept = round.values;
  report.streams[0].payload_bytes = round.payload_bytes;
  report.sent_bytes = round.sent_bytes;
  report.received_bytes = round.received_bytes;
  report.wait_seconds = round.seconds;
  if (!asynchronous()) return;
  // A round of all is held when all together have taken as many steps as each would have.
  worker_->common_steps = static_cast<int64_t>(steps_before(round));
  if (steps_before(round) >= context().timetable.steps) over_ = true;
}

void LocalSteps::adjust_gradients() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor all =
      torch::from_blob(gradient_.data(), {static_cast<int64_t>(gradient_.size())}, torch::kFloat32);
  const auto each = [&](const auto& visit) {
    int64_t begin = 0;
    for (const TrainableParameter& parameter : worker_->parameters()) {
      torch::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) gradient = torch::zeros_like(parameter.tensor);
      visit(gradient, all.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
  };
  each([](torch::Tensor& gradient, const torch::Tensor& place) { place.copy_(gradient); });
  sync_->adjust_gradient(weights(), gradient_);
  each([](torch::Tensor& gradient, const torch::Tensor& place) { gradient.copy_(place); });
}

LocalSteps::Shown LocalSteps::shown() const {
  const auto now = worker_->weights();
  Shown all{.weights = {now.begin(), now.end()}, .buffers = {}};
  for (const torch::Tensor& buffer : context().task.module->buffers())
    all.buffers.push_back(buffer.clone());
  return all;
}

void LocalSteps::set_weights(std::span<const float> weights) {
  std::copy(weights.begin(), weights.end(), this->weights().begin());
  worker_->put_back();
}

void LocalSteps::show(const Shown& what) {
  const torch::NoGradGuard no_grad;
  set_weights(what.weights);
  const auto buffers = context().task.module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(what.buffers[i]);
}

void LocalSteps::leave() {
  ranks_ = sync_->leave();
  if (ranks_.empty() || std::ssize(ranks_) == group_->size()) return;
  left_ = std::make_unique<MemberGroup>(context().group, ranks_, 0);
  group_ = left_.get();
}

void LocalSteps::measure_norms_in(Group& group) {
  const auto batch = static_cast<uint64_t>(context().recipe.integer("train.evaluate_batch"));
  const auto samples = static_cast<uint64_t>(context().recipe.integer("sync.norm_samples"));
  measure_norms(group, context().task, context().data, samples, batch, context().buffers);
}

void LocalSteps::form_common() {
  AlignedVector<float> centre(weights().size());
  sync_->centre(own_->weights, centre);
  set_weights(centre);
  measure_norms_in(*group_);
  common_ = shown();
}

void LocalSteps::show_common() {
  own_ = shown();
  if (common_)
    show(*common_);
  else
    form_common();
}

void LocalSteps::show_own() {
  show(*own_);
  own_.reset();
}

void LocalSteps::judge_more(const Judge& judge, EvaluationEvent& event) {
  event.spread = spread();
  const auto who = leader();
  if (!who) return;
  event.leader = who;
  show_worker(*who);
  event.leader_error = judge.score(context().task, judge.test).error;
  if (judge.hold_out != nullptr)
    event.leader_hold_out_error = judge.score(context().task, *judge.hold_out).error;
  show_own();
}

void LocalSteps::judge_leader(const RoundReport& round, const Judge& judge,
                              EvaluationEvent& event) {
  own_ = shown();
  set_weights(sync_->led_by());
  measure_norms_in(*make_local_groups(1)[0]);
  const Score test = judge.score(context().task, judge.test);
  event.loss = test.loss;
  event.error = test.error;
  event.samples = test.samples;
  event.round = round.round;
  event.leader = round.leader;
  event.leader_error = test.error;
  if (judge.hold_out != nullptr)
    event.hold_out_error = event.leader_hold_out_error =
        judge.score(context().task, *judge.hold_out).error;
  show_own();
}

std::vector<LostWorker> LocalSteps::lost() const {
  std::vector<LostWorker> lost = sync_->lost();
  if (context().group.rank() == 0 || !left_) return lost;
  for (int rank = 0; rank < context().group.size(); ++rank)
    if (std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end())
      lost.push_back({.rank = rank});
  return lost;
}

std::optional<int> LocalSteps::leader() {
  int64_t who = worker_->leader;
  group_->broadcast(std::as_writable_bytes(std::span(&who, 1)), 0);
  const auto there = [&] { return std::find(ranks_.begin(), ranks_.end(), who) != ranks_.end(); };
  if (who < 0 || who >= context().group.size() || (left_ && !there())) return std::nullopt;
  return static_cast<int>(who);
}

void LocalSteps::show_worker(int rank) {
  own_ = shown();
  if (left_)
    rank = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  for (const NamedTensor& weight : named_weights(*context().task.module))
    broadcast_tensor(*group_, weight, rank);
}

double LocalSteps::spread() {
  if (!common_) {
    show_common();
    show_own();
  }
  const std::span<const float> now = weights();
  double mine = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const double distance = double{now[i]} - double{common_->weights[i]};
    mine += distance * distance;
  }
  std::vector<double> all(static_cast<size_t>(group_->size()));
  group_->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  double sum = 0;
  for (const double square : all) sum += square;
  return std::sqrt(sum / static_cast<double>(all.size()));
}

}  // namespace thinwire
