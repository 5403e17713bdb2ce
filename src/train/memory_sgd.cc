// MemorySgd: steps one parameter after another.
// SPDX-License-Identifier: Apache-2.0
#include "train/memory_sgd.h"

#include <torch/torch.h>

#include <memory>

#include "kernel/decayed_step.h"
#include "train/parameter_steps.h"
#include "train/tensor_floats.h"

namespace thinwire {
namespace {

using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

// Of weights that decay, with a momentum of the decay.
void take_decayed_step(torch::Tensor& weights, const SGDOptions& options, SGDParamState& state) {
  const torch::Tensor gradient = weights.grad();
  const bool is_first = !state.momentum_buffer().defined();
  if (is_first) state.momentum_buffer(torch::zeros_like(weights));
  torch::Tensor velocity = state.momentum_buffer();
  const double rest = is_first ? 1 : 1 - options.dampening();
  if (have_floats({weights, gradient, velocity})) {
    const kernel::DecayedStep numbers = {.rate = static_cast<float>(options.lr()),
                                         .decay = static_cast<float>(options.weight_decay()),
                                         .momentum = static_cast<float>(options.momentum()),
                                         .rest = static_cast<float>(rest),
                                         .nesterov = options.nesterov()};
    kernel::decayed_step(numbers, floats_of(gradient), floats_of(velocity), floats_of(weights));
    return;
  }
  const torch::Tensor own = weights.mul(options.weight_decay());
  velocity.mul_(options.momentum()).add_(own, rest);
  const torch::Tensor along = options.nesterov() ? own.add(velocity, options.momentum()) : velocity;
  weights.add_(gradient.add(along), -options.lr());
}

}  // namespace

torch::Tensor MemorySgd::step(LossClosure closure) {
  return step_parameters<SGDOptions>(
      *this, closure, [&](torch::Tensor& weights, const SGDOptions& options) {
        if (options.weight_decay() == 0) {
          weights.add_(weights.grad(), -options.lr());
        } else if (options.momentum() == 0) {
          weights.add_(weights.grad().add(weights, options.weight_decay()), -options.lr());
        } else {
          auto& slot = state_[weights.unsafeGetTensorImpl()];
          if (!slot) slot = std::make_unique<SGDParamState>();
          take_decayed_step(weights, options, static_cast<SGDParamState&>(*slot));
        }
      });
}

}  // namespace thinwire
