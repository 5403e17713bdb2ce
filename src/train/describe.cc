// Finds the kinds of parameters from the types of the libtorch modules that own them.
// SPDX-License-Identifier: Apache-2.0
#include "train/describe.h"

#include <set>
#include <string>

#include "thinwire/torch.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

template <typename... Types>
bool is_any(const nn::Module& module) {
  return ((module.as<Types>() != nullptr) || ...);
}

// A norm's bias is part of the norm. Elsewhere the name says it: "bias", "bias_ih_l0",
// "in_proj_bias".
TensorKind kind_of_parameter(TensorKind owner, const std::string& name) {
  if (owner == TensorKind::kNorm) return owner;
  return name.find("bias") != std::string::npos ? TensorKind::kBias : owner;
}

}  // namespace

TensorKind kind_of_module(const nn::Module& module) {
  if (is_any<nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
             nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(module))
    return TensorKind::kConvolution;
  if (is_any<nn::LinearImpl, nn::BilinearImpl, nn::MultiheadAttentionImpl>(module))
    return TensorKind::kLinear;
  if (is_any<nn::LSTMImpl, nn::GRUImpl, nn::RNNImpl, nn::LSTMCellImpl, nn::GRUCellImpl,
             nn::RNNCellImpl>(module))
    return TensorKind::kRecurrent;
  if (is_any<nn::EmbeddingImpl, nn::EmbeddingBagImpl>(module)) return TensorKind::kEmbedding;
  if (is_any<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
             nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::LayerNormImpl, nn::GroupNormImpl>(
          module))
    return TensorKind::kNorm;
  return TensorKind::kOther;
}

std::vector<TrainableParameter> trainable_parameters(const nn::Module& module) {
  std::vector<TrainableParameter> found;
  std::set<const void*> seen;
  const auto visit = [&](const std::string& path, const nn::Module& owner) {
    const TensorKind kind = kind_of_module(owner);
    for (const auto& parameter : owner.named_parameters(/*recurse=*/false)) {
      const torch::Tensor& tensor = parameter.value();
      if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      TensorSpec spec;
      spec.name = path.empty() ? parameter.key() : path + "." + parameter.key();
      spec.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
      spec.kind = kind_of_parameter(kind, parameter.key());
      found.push_back({std::move(spec), tensor});
    }
  };
  module.apply(nn::Module::ConstNamedModuleApplyFunction(visit));
  return found;
}

std::vector<TensorSpec> describe_parameters(const nn::Module& module) {
  std::vector<TensorSpec> specs;
  for (auto& parameter : trainable_parameters(module)) specs.push_back(std::move(parameter.spec));
  return specs;
}

}  // namespace thinwire
