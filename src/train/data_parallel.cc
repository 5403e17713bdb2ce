// DataParallel: hands gradients to the exchange from hooks inside the backward pass.
// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "thinwire/auto_codec.h"
#include "thinwire/torch.h"
#include "train/broadcast_weights.h"
#include "train/describe.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

DType dtype_of(const torch::Tensor& tensor, const std::string& name) {
  if (tensor.scalar_type() == torch::kFloat32) return DType::kFloat32;
  if (tensor.scalar_type() == torch::kBFloat16) return DType::kBFloat16;
  throw Error(ErrorCode::kUnsupported, "parameter '" + name + "' is neither float32 nor bfloat16");
}

// Or its gradient has no place for a mean.
void require_dense(const TrainableParameter& parameter) {
  if (parameter.tensor.layout() != torch::kStrided || !parameter.tensor.is_contiguous())
    throw Error(ErrorCode::kUnsupported,
                "tensor '" + parameter.spec.name + "' is not a contiguous tensor");
}

// Of a gradient's memory inside a hook: the parameter's, and autograd's until the hook returns.
// With more, it is a view of what another parameter or the rest of the backward pass still reads
// (of both a and b in a.view({2, 3}) + b.view({2, 3})), and the exchange must not write the mean
// there.
constexpr uint64_t kOwnReferences = 2;

}  // namespace

struct DataParallel::State {
  std::vector<std::string> names;
  std::vector<torch::Tensor> parameters;
  std::vector<bool> started;
  bool accumulating = false;
  bool alone = false;                                     // one rank
  std::function<void(size_t, const torch::Tensor&)> see;  // null: nobody
  std::unique_ptr<Exchange> exchange;

  // Called by autograd when the gradient of `index` is complete for this backward pass.
  void ready(size_t index) {
    if (accumulating) return;
    if (started[index])
      throw Error(ErrorCode::kContract,
                  "gradient of '" + names[index] +
                      "' came twice in a step; call set_accumulating(true) for all but the last "
                      "backward pass");
    start(index);
  }

  void start(size_t index) {
    torch::Tensor& gradient = parameters[index].mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameters[index]);
    if (gradient.layout() != torch::kStrided)
      throw Error(ErrorCode::kUnsupported, "gradient of '" + names[index] + "' is sparse");
    if (!gradient.is_contiguous() || gradient.storage().use_count() > kOwnReferences)
      gradient = gradient.clone(at::MemoryFormat::Contiguous);
    started[index] = true;
    if (see) see(index, gradient);
    exchange->start(index, view_of(gradient, dtype_of(gradient, names[index])));
  }
};

namespace {

// Autograd owns it; it does not keep the state alive.
template <typename State>
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(std::weak_ptr<State> state, size_t index) : state_(std::move(state)), index_(index) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override {
    if (const auto state = state_.lock()) state->ready(index_);
  }

 private:
  std::weak_ptr<State> state_;
  size_t index_;
};

}  // namespace

DataParallel::DataParallel(torch::nn::Module& module, Group& group)
    : state_(std::make_shared<State>()) {
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    dtype_of(parameter.tensor, parameter.spec.name);
    require_dense(parameter);
    state_->names.push_back(parameter.spec.name);
    state_->parameters.push_back(parameter.tensor);
  }
  state_->started.assign(state_->names.size(), false);
  state_->alone = group.size() == 1;
}

DataParallel::DataParallel(torch::nn::Module& module, Group& group, Store& store,
                           const ExchangeOptions& options)
    : DataParallel(module, group) {
  state_->exchange = make_auto_exchange(group, store, describe_parameters(module), options);
  broadcast_weights(module, group);
  hook();
}

DataParallel::DataParallel(torch::nn::Module& module, Group& group, Store& store,
                           const ExchangeOptions& options, Regrouped& how)
    : DataParallel(module, group) {
  state_->exchange = join_exchange(group, store, describe_parameters(module), options, &how);
  hook();
}

void DataParallel::hook() {
  for (size_t i = 0; i < state_->parameters.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(state_->parameters[i],
                                                   std::make_unique<ReadyHook<State>>(state_, i));
}

DataParallel::~DataParallel() {
  for (const torch::Tensor& parameter : state_->parameters)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void DataParallel::set_accumulating(bool accumulating) noexcept {
  state_->accumulating = accumulating;
}

void DataParallel::before_exchange(
    std::function<void(size_t index, const torch::Tensor& gradient)> see) {
  state_->see = std::move(see);
}

StepReport DataParallel::finish() {
  // Of a single rank: as a plain loop has it, the optimiser skips them unless a memory gave what it
  // owed.
  std::vector<size_t> absent;
  for (size_t i = 0; i < state_->started.size(); ++i) {
    if (state_->started[i]) continue;
    if (state_->alone && !state_->parameters[i].grad().defined()) absent.push_back(i);
    state_->start(i);
  }
  StepReport report = state_->exchange->finish();
  for (const size_t i : absent)
    if (torch::Tensor& mean = state_->parameters[i].mutable_grad(); !mean.any().item<bool>())
      mean.reset();
  state_->started.assign(state_->started.size(), false);
  return report;
}

Regrouped DataParallel::regroup(Group& group, uint32_t generation) {
  Regrouped how = state_->exchange->regroup(group, generation);
  state_->started.assign(state_->names.size(), false);
  state_->alone = group.size() == 1;
  return how;
}

Exchange& DataParallel::exchange() noexcept { return *state_->exchange; }

}  // namespace thinwire
