// SharedSteps: the step of a data-parallel run, and what memories owe at its end.
// SPDX-License-Identifier: Apache-2.0
#include "train/shared_steps.h"

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "thinwire/moments.h"
#include "train/adam_of_ranks.h"
#include "train/describe.h"
#include "train/flush.h"
#include "train/optimizer.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

using Parameters = std::vector<TrainableParameter>;

// Gradients that are absent become zeros, and all become contiguous.
void fill_in(const Parameters& parameters) {
  for (const TrainableParameter& parameter : parameters) {
    torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameter.tensor);
    gradient = gradient.contiguous();
  }
}

// Added up in the same order on every processor, unlike libtorch's norm.
double norm_of_gradients(const Parameters& parameters) {
  double square = 0;
  for (const TrainableParameter& parameter : parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    const torch::Tensor values = moved(gradient.to(torch::kFloat32), torch::kCPU);
    square +=
        measure({values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}).square_sum;
  }
  return std::sqrt(square);
}

}  // namespace

SharedSteps::SharedSteps(const TrainingContext& context, DataParallel& parallel,
                         SecondMoments* moments, Store& store)
    : StepTaker(context),
      parallel_(parallel),
      moments_(moments),
      attack_(context.recipe, context.group, store),
      measures_(context.recipe.text("exchange.flush") != "off") {
  if (moments_ != nullptr)
    parallel_.before_exchange(
        [moments](size_t index, const torch::Tensor& gradient) { moments->add(index, gradient); });
}

StepOutcome SharedSteps::take(uint64_t step) {
  outcome_ = {};
  begin(step, outcome_);
  under_way_ = true;
  backward(step, MeanOver::kWholeBatch, outcome_);
  if (clips_own()) clip_own();
  attack_.change(step, *context().task.module);
  return conclude(parallel_.finish());
}

StepOutcome SharedSteps::conclude(const StepReport& report) {
  outcome_.report = report;
  if (moments_ != nullptr) end_moments();
  if (measures_)
    outcome_.delivered_norm = norm_of_gradients(trainable_parameters(*context().task.module));
  end(report.skipped, outcome_);
  under_way_ = false;
  return std::move(outcome_);
}

// What averaging sends counts as sent in the step.
void SharedSteps::end_moments() {
  StepReport& report = outcome_.report;
  moments_->end_step(!report.skipped);
  if (report.skipped) return;
  auto& optimizer = dynamic_cast<AdamOfRanks&>(context().optimizer);
  std::vector<torch::Tensor> weights;
  for (const TrainableParameter& parameter : trainable_parameters(*context().task.module))
    weights.push_back(parameter.tensor);
  if (!moments_->due() && !optimizer.lacks_moments(weights)) return;
  std::vector<torch::Tensor> moments = optimizer.moments(weights);
  const StepReport averaged =
      moments_->average(context().group, parallel_.exchange().options().device, moments);
  report.sent_bytes += averaged.sent_bytes;
  report.between_bytes += averaged.between_bytes;
  report.received_bytes += averaged.received_bytes;
  report.device_to_host_bytes += averaged.device_to_host_bytes;
  report.host_to_device_bytes += averaged.host_to_device_bytes;
}

void SharedSteps::abandon() {
  if (!std::exchange(under_way_, false)) return;
  context().buffers.restore();
  context().optimizer.zero_grad();
}

double SharedSteps::gradient_norm(uint64_t step) {
  const Parameters parameters = trainable_parameters(*context().task.module);
  std::vector<TensorSpec> specs;
  for (const TrainableParameter& parameter : parameters) specs.push_back(parameter.spec);
  Store nothing;
  ExchangeOptions uncompressed;
  uncompressed.device = parallel_.exchange().options().device;
  const auto exchange = make_exchange(context().group, nothing, specs, uncompressed);

  StepOutcome unused;
  context().buffers.keep();
  apart_ = true;
  backward(step, MeanOver::kWholeBatch, unused);
  apart_ = false;
  context().buffers.restore();
  if (clips_own()) clip_own();
  fill_in(parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].tensor.grad();
    const bool bf16 = gradient.scalar_type() == torch::kBFloat16;
    exchange->start(i, view_of(gradient, bf16 ? DType::kBFloat16 : DType::kFloat32));
  }
  exchange->finish();
  const double norm = norm_of_gradients(parameters);
  context().optimizer.zero_grad();
  return norm;
}

double SharedSteps::collect_owed() {
  const Parameters parameters = trainable_parameters(*context().task.module);
  Exchange& exchange = parallel_.exchange();
  exchange.change(flushing(exchange.options()));
  exchange.set_momentum(std::vector<Momentum>(parameters.size()));
  context().optimizer.zero_grad();
  fill_in(parameters);
  const StepReport report = parallel_.finish();
  if (report.skipped)
    throw AgreedError(report.fault.code, "exchange.flush: " + describe(report.fault));
  return norm_of_gradients(parameters);
}

void SharedSteps::take_owed(double rate) {
  before_.clear();
  for (const TrainableParameter& parameter : trainable_parameters(*context().task.module))
    before_.push_back(parameter.tensor.detach().clone());
  clip_mean();
  step_without_momentum(context().optimizer, rate);
  context().optimizer.zero_grad();
}

void SharedSteps::take_back() {
  const torch::NoGradGuard no_grad;
  const Parameters parameters = trainable_parameters(*context().task.module);
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor weights = parameters[i].tensor;
    weights.copy_(before_.at(i));
  }
}

}  // namespace thinwire
