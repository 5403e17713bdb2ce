// SecondMoments: adds a rank's own gradients up, and averages over ranks.
// SPDX-License-Identifier: Apache-2.0
#include "train/second_moments.h"

#include <cmath>
#include <string>
#include <utility>

#include "train/named_tensors.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

constexpr const char* kSteps = "steps";

}  // namespace

SecondMoments::SecondMoments(const std::vector<TrainableParameter>& parameters, double beta2)
    : beta2_(beta2) {
  for (const TrainableParameter& parameter : parameters) {
    specs_.push_back(parameter.spec);
    for (auto* kept : {&own_, &next_})
      kept->push_back(torch::zeros_like(parameter.tensor.detach(), torch::kFloat32));
  }
}

void SecondMoments::add(size_t index, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor values = gradient.detach().to(torch::kFloat32);
  torch::Tensor& next = next_.at(index);
  torch::mul_out(next, own_.at(index), torch::scalar_tensor(beta2_));
  next.addcmul_(values, values, 1 - beta2_);
}

void SecondMoments::end_step(bool counts) {
  if (!counts) return;
  std::swap(own_, next_);
  ++steps_;
}

bool SecondMoments::due() const noexcept {
  const auto steps = static_cast<uint64_t>(steps_);
  return steps > 0 && (steps % kPeriod == 0 || (steps < kPeriod && (steps & (steps - 1)) == 0));
}

StepReport SecondMoments::average(Group& group, std::shared_ptr<DeviceMemory> device,
                                  std::vector<torch::Tensor>& moments) const {
  const torch::NoGradGuard no_grad;
  Store nothing;
  ExchangeOptions options;
  options.codec = "bf16";
  options.device = std::move(device);
  const auto exchange = make_exchange(group, nothing, specs_, options);
  const double factor =
      1 / (1 - std::pow(beta2_, static_cast<double>(steps_))) / std::sqrt(group.size());
  std::vector<torch::Tensor> means;
  for (size_t i = 0; i < own_.size(); ++i) {
    means.push_back(own_[i] * factor);
    exchange->start(i, view_of(means.back(), DType::kFloat32));
  }
  StepReport report = exchange->finish();
  if (!report.skipped)
    for (size_t i = 0; i < means.size(); ++i) moments.at(i).copy_(means[i]);
  return report;
}

StateArrays SecondMoments::save() const {
  StateArrays arrays{make_state(kSteps, std::span(&steps_, 1), OnResize::kShared)};
  for (size_t i = 0; i < own_.size(); ++i)
    arrays.push_back(to_state({specs_[i].name, own_[i]}, OnResize::kOwedToMean));
  return arrays;
}

Status SecondMoments::load(const StateArrays& arrays) {
  int64_t steps = 0;
  if (Status status = copy_state(arrays, kSteps, std::span(&steps, 1)); !status) return status;
  std::vector<torch::Tensor> loaded;
  for (size_t i = 0; i < own_.size(); ++i) {
    loaded.push_back(torch::empty_like(own_[i]));
    if (Status status = from_state(arrays, {specs_[i].name, loaded.back()}); !status) return status;
  }
  own_ = std::move(loaded);
  steps_ = steps;
  return Status::ok();
}

}  // namespace thinwire
