// libtorch's default initial distributions, drawn from Philox.
//
//   linear, convolution   weight and bias uniform in +-1/sqrt(fan_in): Kaiming-uniform with a =
//                         sqrt(5) [He et al., ICCV 2015], which is libtorch's choice
//   recurrent             everything uniform in +-1/sqrt(hidden)
//   embedding             standard normal
//   norm                  weight 1, bias 0
//
// SPDX-License-Identifier: Apache-2.0
#include "train/models/initialise.h"

#include <torch/torch.h>

#include <cmath>
#include <string>

#include "core/check.h"
#include "core/random.h"
#include "train/describe.h"

namespace thinwire {
namespace {

template <typename Draw>
void fill(torch::Tensor& tensor, Draw draw) {
  THINWIRE_CHECK(tensor.scalar_type() == torch::kFloat && tensor.is_contiguous(),
                 "initialise: parameters must be contiguous fp32");
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = draw(static_cast<uint64_t>(i));
}

// Half the width of the uniform distribution of all parameters that `owner` has.
float bound_of(const torch::nn::Module& owner, TensorKind kind) {
  const auto parameters = owner.named_parameters(/*recurse=*/false);
  if (kind == TensorKind::kRecurrent) {
    const torch::Tensor* hidden = parameters.find("weight_hh_l0");
    if (hidden == nullptr) hidden = &parameters["weight_hh"];  // the single-step cells
    return 1 / std::sqrt(static_cast<float>(hidden->size(1)));
  }
  const torch::Tensor& weight = parameters["weight"];
  return 1 / std::sqrt(static_cast<float>(weight.numel() / weight.size(0)));
}

}  // namespace

void initialise(torch::nn::Module& module, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  uint32_t index = 0;
  const auto visit = [&](torch::nn::Module& owner) {
    const TensorKind kind = kind_of_module(owner);
    for (auto& parameter : owner.named_parameters(/*recurse=*/false)) {
      torch::Tensor& tensor = parameter.value();
      const RandomKey key{.seed = seed, .use = RandomUse::kInit, .step = 0, .stream = index++};
      switch (kind) {
        case TensorKind::kConvolution:
        case TensorKind::kLinear:
        case TensorKind::kRecurrent: {
          const float bound = bound_of(owner, kind);
          fill(tensor, [&](uint64_t i) { return bound * (2 * random_unit(key, i) - 1); });
          break;
        }
        case TensorKind::kEmbedding:
          fill(tensor, [&](uint64_t i) { return random_normal(key, i); });
          break;
        case TensorKind::kNorm:
          tensor.fill_(parameter.key() == "weight" ? 1 : 0);
          break;
        default:
          THINWIRE_CHECK(false, "initialise: " + owner.name() + " owns '" + parameter.key() +
                                    "', whose distribution is not known");
      }
    }
  };
  module.apply(torch::nn::Module::ModuleApplyFunction(visit));
}

}  // namespace thinwire
