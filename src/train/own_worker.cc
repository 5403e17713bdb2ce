// OwnWorker: a worker's weights as one vector, saved and loaded.
// SPDX-License-Identifier: Apache-2.0
#include "train/own_worker.h"

#include <torch/torch.h>

#include <string_view>

#include "train/named_tensors.h"
#include "train/optimizer.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

constexpr std::string_view kOptimizer = "optimizer/";
constexpr const char* kCounts = "counts";

StateArrays optimizer_arrays(const StateArrays& all) {
  StateArrays arrays;
  for (const StateArray& array : all) {
    if (!array.name.starts_with(kOptimizer)) continue;
    arrays.push_back(array);
    arrays.back().name.erase(0, kOptimizer.size());
  }
  return arrays;
}

}  // namespace

OwnWorker::OwnWorker(torch::nn::Module& module, torch::optim::Optimizer& optimizer)
    : module_(module), optimizer_(optimizer), parameters_(trainable_parameters(module)) {
  const torch::NoGradGuard no_grad;
  int64_t count = 0;
  torch::Device device = torch::kCPU;
  for (const TrainableParameter& parameter : parameters_) {
    if (parameter.tensor.scalar_type() != torch::kFloat32)
      throw Error(ErrorCode::kUnsupported, "parameter '" + parameter.spec.name +
                                               "' is not float32, which workers that step by "
                                               "themselves need");
    count += parameter.tensor.numel();
    device = parameter.tensor.device();
  }
  all_ = torch::empty({count}, device);
  int64_t begin = 0;
  for (const TrainableParameter& parameter : parameters_) {
    const torch::Tensor place =
        all_.narrow(0, begin, parameter.tensor.numel()).view(parameter.tensor.sizes());
    place.copy_(parameter.tensor);
    parameter.tensor.set_data(place);
    begin += parameter.tensor.numel();
  }
}

std::span<float> OwnWorker::weights() {
  here_ = moved(all_, torch::kCPU);
  return {here_.mutable_data_ptr<float>(), static_cast<size_t>(here_.numel())};
}

void OwnWorker::put_back() {
  const torch::NoGradGuard no_grad;
  if (!here_.is_alias_of(all_)) all_.copy_(here_);
}

StateArrays OwnWorker::save() const {
  StateArrays arrays;
  arrays.push_back(to_state({"weights", all_}, OnResize::kOwedToMean));
  arrays.push_back(make_state("leader", std::span(&leader, 1), OnResize::kCopy));
  arrays.push_back(make_state("loss", std::span(&loss, 1), OnResize::kCopy));
  const int64_t counts[] = {steps, common_steps};
  arrays.push_back(make_state(kCounts, counts, OnResize::kCopy));
  for (StateArray& array : save_optimizer(optimizer_, module_)) {
    array.name.insert(0, kOptimizer);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Status OwnWorker::load(const StateArrays& arrays) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loaded = torch::empty_like(all_);
  int64_t who = -1;
  double last = 0;
  if (Status status = from_state(arrays, {"weights", loaded}); !status) return status;
  if (Status status = copy_state(arrays, "leader", std::span(&who, 1)); !status) return status;
  if (Status status = copy_state(arrays, "loss", std::span(&last, 1)); !status) return status;
  int64_t counts[] = {steps, common_steps};
  if (find_state(arrays, kCounts) != nullptr)  // earlier versions have none
    if (Status status = copy_state(arrays, kCounts, std::span(counts)); !status) return status;
  if (Status status = load_optimizer(optimizer_, module_, optimizer_arrays(arrays)); !status)
    return status;
  all_.copy_(loaded);
  leader = who;
  loss = last;
  steps = counts[0];
  common_steps = counts[1];
  return Status::ok();
}

}  // namespace thinwire
