// MemorySgd: steps one parameter after another, with the operations of libtorch's own SGD.
// SPDX-License-Identifier: Apache-2.0
#include "train/memory_sgd.h"

#include <torch/torch.h>

#include <memory>

#include "train/parameter_steps.h"

namespace thinwire {
namespace {

using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

// What weight decay adds to the gradient.
torch::Tensor decay_of(const torch::Tensor& weights, const SGDOptions& options,
                       std::unique_ptr<torch::optim::OptimizerParamState>& state) {
  const torch::Tensor own = weights.mul(options.weight_decay());
  if (options.momentum() == 0) return own;
  if (!state) state = std::make_unique<SGDParamState>();
  auto& known = static_cast<SGDParamState&>(*state);
  torch::Tensor velocity = known.momentum_buffer();
  if (velocity.defined())
    velocity.mul_(options.momentum()).add_(own, 1 - options.dampening());
  else
    known.momentum_buffer(velocity = own.clone());
  return options.nesterov() ? own.add(velocity, options.momentum()) : velocity;
}

}  // namespace

torch::Tensor MemorySgd::step(LossClosure closure) {
  return step_parameters<SGDOptions>(
      *this, closure, [&](torch::Tensor& weights, const SGDOptions& options) {
        torch::Tensor along = weights.grad();
        if (options.weight_decay() != 0)
          along = along.add(decay_of(weights, options, state_[weights.unsafeGetTensorImpl()]));
        weights.add_(along, -options.lr());
      });
}

}  // namespace thinwire
