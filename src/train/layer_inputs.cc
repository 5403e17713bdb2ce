// torch::nn::Linear calls aten::addmm(bias, inputs, W^T) on matrices, else aten::matmul(inputs,
// W^T), and torch::nn::Embedding aten::embedding(W, rows). W^T is a view: its memory tells whose it
// is. addmm and matmul reach other operations that are not listed here, so that no pass counts
// twice.
// SPDX-License-Identifier: Apache-2.0
#include "train/layer_inputs.h"

#include <torch/torch.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace thinwire {
namespace {

struct Operation {
  std::string_view name;
  size_t weight, inputs;  // their places among the arguments
};

constexpr auto kOperations = std::to_array<Operation>(
    {{"aten::addmm", 2, 1}, {"aten::matmul", 1, 0}, {"aten::embedding", 0, 1}});

// libtorch calls functions without a state.
thread_local LayerInputs* observer = nullptr;

}  // namespace

LayerInputs::LayerInputs(std::vector<torch::Tensor> weights) : weights_(std::move(weights)) {
  THINWIRE_CHECK(observer == nullptr, "layer inputs: another one sees this thread's passes");
  observer = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& operation) -> std::unique_ptr<at::ObserverContext> {
            if (observer != nullptr) observer->see(operation);
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

LayerInputs::~LayerInputs() {
  at::removeCallback(handle_);
  observer = nullptr;
}

std::vector<LayerInput> LayerInputs::take() { return std::exchange(seen_, {}); }

void LayerInputs::see(const at::RecordFunction& operation) {
  const std::string_view name = operation.name();
  for (const Operation& one : kOperations) {
    if (name != one.name) continue;
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    const auto arguments = operation.inputs();
    const torch::Tensor& weight = arguments[one.weight].toTensor();
    if (!weight.has_storage()) return;
    for (size_t layer = 0; layer < weights_.size(); ++layer)
      if (weights_[layer].const_data_ptr() == weight.const_data_ptr())
        seen_.push_back({layer, arguments[one.inputs].toTensor().detach().clone()});
  }
}

}  // namespace thinwire
