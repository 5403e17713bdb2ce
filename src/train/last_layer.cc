// Puts an identity matrix above the last layer's weights, so that its outputs begin with its
// inputs.
// SPDX-License-Identifier: Apache-2.0
#include "train/last_layer.h"

namespace thinwire {
namespace {

torch::nn::LinearImpl* last_linear(torch::nn::Module& module) {
  torch::nn::LinearImpl* last = nullptr;
  for (const auto& part : module.modules())
    if (auto* linear = part->as<torch::nn::LinearImpl>()) last = linear;
  return last;
}

}  // namespace

torch::Tensor gradient_products(const GradientFactors& a, const GradientFactors& b) {
  return a.inputs.mm(b.inputs.t()) * a.residuals.mm(b.residuals.t());
}

torch::Tensor gradient_squares(const GradientFactors& a) {
  return a.inputs.square().sum(1) * a.residuals.square().sum(1);
}

LastLayer::LastLayer(const Task& task)
    : task_(task), training_(task.module->is_training()), layer_(last_linear(*task.module)) {
  if (layer_ == nullptr) throw Error(ErrorCode::kUnsupported, "the network has no linear layer");
  const torch::NoGradGuard no_grad;
  weight_ = layer_->weight;
  bias_ = layer_->bias;
  // The products of an input with 1 and of the others with 0 add up to that input, in any order.
  const torch::Tensor identity = torch::eye(weight_.size(1), weight_.options());
  layer_->weight = torch::cat({identity, weight_.detach()});
  if (bias_.defined())
    layer_->bias = torch::cat({torch::zeros({weight_.size(1)}, bias_.options()), bias_.detach()});
  task_.module->eval();
}

LastLayer::~LastLayer() {
  layer_->weight = weight_;
  layer_->bias = bias_;
  task_.module->train(training_);
}

GradientFactors LastLayer::factors(const Batch& batch) const {
  const torch::NoGradGuard no_grad;
  const int64_t features = weight_.size(1), classes = weight_.size(0);
  const torch::Tensor outputs = task_.forward(batch.inputs);
  const int64_t samples = batch.targets.size(0);
  if (outputs.dim() != 2 || outputs.size(0) != samples || outputs.size(1) != features + classes ||
      batch.targets.dim() != 1)
    throw Error(ErrorCode::kUnsupported,
                "the network's outputs are not those of its last linear layer");
  const torch::Tensor all = outputs.to(torch::kFloat64);
  const torch::Tensor z = all.slice(1, features);
  torch::Tensor inputs = all.slice(1, 0, features);
  if (bias_.defined())
    inputs = torch::cat({inputs, torch::ones({samples, 1}, inputs.options())}, 1);
  torch::Tensor residuals = torch::softmax(z, 1);
  residuals.scatter_add_(1, batch.targets.unsqueeze(1),
                         torch::full({samples, 1}, -1.0, residuals.options()));
  return {.inputs = inputs, .residuals = residuals, .predicted = z.argmax(1)};
}

}  // namespace thinwire
