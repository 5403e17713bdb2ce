// Optimizer: SGD, SGD by signs, Adam and NovoGrad with their options, learning rate and saved
// state.
// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer.h"

#include <torch/torch.h>

#include <cmath>
#include <tuple>

#include "train/adam.h"
#include "train/adam_of_ranks.h"
#include "train/describe.h"
#include "train/memory_sgd.h"
#include "train/named_tensors.h"
#include "train/novograd.h"
#include "train/recipe_parts.h"
#include "train/sign_sgd.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDParamState;

constexpr std::string_view kMomentum = "/momentum_buffer";
constexpr std::string_view kMean = "/exp_avg";
constexpr std::string_view kSquare = "/exp_avg_sq";
constexpr std::string_view kStep = "/step";
constexpr std::string_view kNormSquare = "/norm_sq";

// A group's option that equals the class's own default takes the optimiser's defaults instead:
// those must have no weight decay, or no group could be without.
template <typename OptimizerOptions>
std::vector<OptimizerParamGroup> groups_of(const Options& recipe, const torch::nn::Module& module,
                                           const OptimizerOptions& options) {
  std::vector<torch::Tensor> decayed, spared;
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    const TensorKind kind = parameter.spec.kind;
    const bool spare = (kind == TensorKind::kBias || kind == TensorKind::kNorm) &&
                       !recipe.flag("optimizer.decay_bias_norm");
    (spare ? spared : decayed).push_back(parameter.tensor);
  }
  std::vector<OptimizerParamGroup> groups;
  if (!decayed.empty()) groups.emplace_back(decayed, std::make_unique<OptimizerOptions>(options));
  if (!spared.empty()) {
    auto without = std::make_unique<OptimizerOptions>(options);
    without->weight_decay(0);
    groups.emplace_back(spared, std::move(without));
  }
  return groups;
}

// What Adam or NovoGrad divides a gradient by.
torch::Tensor scale_of(const torch::optim::Optimizer& optimizer,
                       const torch::optim::OptimizerParamState& state, const AdamOptions& options) {
  if (const auto* normed = dynamic_cast<const NovoGradState*>(&state))
    return torch::tensor(normed->square == 0 ? 1 : std::sqrt(normed->square) + options.eps());
  const auto& adam = dynamic_cast<const AdamParamState&>(state);
  const double counted =
      dynamic_cast<const Adam&>(optimizer).square_share(adam, std::get<1>(options.betas()));
  // By way of double, where MKL's last bit, which depends on the processor, is rounded away.
  const torch::Tensor square = adam.exp_avg_sq() / counted;
  return square.to(torch::kFloat64).sqrt().to(square.scalar_type()).add_(options.eps());
}

// The array `name` as a tensor of the parameter's shape.
Status read(const StateArrays& arrays, const std::string& name, const torch::Tensor& parameter,
            torch::Tensor& out) {
  out = torch::empty_like(parameter);
  return from_state(arrays, {name, out});
}

Status load_novograd(const StateArrays& arrays, const std::string& name,
                     const torch::Tensor& parameter, NovoGradState& state) {
  if (Status s = read(arrays, name + std::string(kMomentum), parameter, state.momentum); !s)
    return s;
  return copy_state(arrays, name + std::string(kNormSquare), std::span(&state.square, 1));
}

Status load_adam(const StateArrays& arrays, const std::string& name, const torch::Tensor& parameter,
                 bool has_mean, AdamParamState& state) {
  torch::Tensor mean, square;
  int64_t step = 0;
  if (has_mean)
    if (Status s = read(arrays, name + std::string(kMean), parameter, mean); !s) return s;
  if (Status s = read(arrays, name + std::string(kSquare), parameter, square); !s) return s;
  if (Status s = copy_state(arrays, name + std::string(kStep), std::span(&step, 1)); !s) return s;
  state.step(step);
  state.exp_avg(mean);
  state.exp_avg_sq(square);
  return Status::ok();
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& recipe,
                                                        const torch::nn::Module& module,
                                                        uint64_t steps_per_epoch) {
  const double rate = recipe.number("optimizer.lr");
  const double decay = recipe.number("optimizer.weight_decay");
  const std::string& kind = recipe.text("optimizer.name");
  if (kind == "signsgd") {
    torch::optim::SGDOptions options(rate);
    const auto groups = groups_of(recipe, module, options.weight_decay(decay));
    options.weight_decay(0);
    return std::make_unique<SignSgd>(groups, options);
  }
  if (kind != "sgd") {
    torch::optim::AdamOptions options(rate);
    const double beta1 = first_moment_acts(recipe) ? recipe.number("optimizer.beta1") : 0;
    options.betas({beta1, recipe.number("optimizer.beta2")})
        .eps(recipe.number("optimizer.epsilon"))
        .weight_decay(decay);
    const auto groups = groups_of(recipe, module, options);
    options.weight_decay(0);
    if (kind == "novograd") return std::make_unique<NovoGrad>(groups, options);
    if (second_moments_of_ranks(recipe)) return std::make_unique<AdamOfRanks>(groups, options);
    if (freezes_second_moment(recipe)) {
      const uint64_t steps = steps_of(recipe.number("optimizer.freeze_after"), steps_per_epoch);
      return std::make_unique<Adam>(groups, options, static_cast<int64_t>(steps));
    }
    return std::make_unique<Adam>(groups, options);
  }
  const Momentum own = own_momentum(recipe);
  if (own.nesterov && own.momentum == 0)
    throw Error(ErrorCode::kBadOption,
                "optimizer.nesterov: needs optimizer.momentum greater than 0");
  torch::optim::SGDOptions options(rate);
  options.momentum(own.momentum)
      .dampening(own.dampening)
      .nesterov(own.nesterov)
      .weight_decay(decay);
  const auto groups = groups_of(recipe, module, options);
  options.weight_decay(0);
  if (momentum_in_memory(recipe)) return std::make_unique<MemorySgd>(groups, options);
  return std::make_unique<torch::optim::SGD>(groups, options);
}

void step_without_momentum(torch::optim::Optimizer& optimizer, double rate) {
  const torch::NoGradGuard no_grad;
  const bool signs = dynamic_cast<SignSgd*>(&optimizer) != nullptr;
  for (OptimizerParamGroup& group : optimizer.param_groups()) {
    for (torch::Tensor& weights : group.params()) {
      torch::Tensor along = weights.grad();
      if (!along.defined()) continue;
      if (signs) along = along.sign();
      if (const auto* adam = dynamic_cast<const AdamOptions*>(&group.options())) {
        const auto found = optimizer.state().find(weights.unsafeGetTensorImpl());
        if (found == optimizer.state().end()) continue;
        along = along / scale_of(optimizer, *found->second, *adam);
        // A position that was never sent has a second moment of 0, and may be owed.
        if (dynamic_cast<const AdamParamState*>(found->second.get()) != nullptr)
          along.clamp_(-kMostRates, kMostRates);
      }
      weights.add_(along, -rate);
    }
  }
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (OptimizerParamGroup& group : optimizer.param_groups()) group.options().set_lr(rate);
}

StateArrays save_optimizer(const torch::optim::Optimizer& optimizer,
                           const torch::nn::Module& module) {
  StateArrays arrays;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (tensor.defined()) arrays.push_back(to_state({name, tensor}, OnResize::kCopy));
  };
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    const std::string& name = parameter.spec.name;
    const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    if (const auto* sgd = dynamic_cast<const SGDParamState*>(found->second.get())) {
      add(name + std::string(kMomentum), sgd->momentum_buffer());
    } else if (const auto* adam = dynamic_cast<const AdamParamState*>(found->second.get())) {
      add(name + std::string(kMean), adam->exp_avg());
      add(name + std::string(kSquare), adam->exp_avg_sq());
      const int64_t step = adam->step();
      arrays.push_back(make_state(name + std::string(kStep), std::span(&step, 1), OnResize::kCopy));
    } else if (const auto* normed = dynamic_cast<const NovoGradState*>(found->second.get())) {
      add(name + std::string(kMomentum), normed->momentum);
      arrays.push_back(make_state(name + std::string(kNormSquare), std::span(&normed->square, 1),
                                  OnResize::kCopy));
    }
  }
  return arrays;
}

Status load_optimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                      const StateArrays& arrays) {
  const bool adam = dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr;
  const bool has_mean = dynamic_cast<AdamOfRanks*>(&optimizer) == nullptr;
  const bool normed = dynamic_cast<NovoGrad*>(&optimizer) != nullptr;
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    const std::string& name = parameter.spec.name;
    const auto has = [&](std::string_view key) {
      return find_state(arrays, name + std::string(key)) != nullptr;
    };
    if (adam && has(kStep)) {
      auto& slot = optimizer.state()[parameter.tensor.unsafeGetTensorImpl()];
      auto state = std::make_unique<AdamParamState>();
      if (Status s = load_adam(arrays, name, parameter.tensor, has_mean, *state); !s) return s;
      slot = std::move(state);
    } else if (normed && has(kNormSquare)) {
      auto state = std::make_unique<NovoGradState>();
      if (Status s = load_novograd(arrays, name, parameter.tensor, *state); !s) return s;
      optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
    } else if (!adam && !normed && has(kMomentum)) {
      auto state = std::make_unique<SGDParamState>();
      torch::Tensor buffer;
      if (Status s = read(arrays, name + std::string(kMomentum), parameter.tensor, buffer); !s)
        return s;
      state->momentum_buffer(buffer);
      optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }
  return Status::ok();
}

}  // namespace thinwire
