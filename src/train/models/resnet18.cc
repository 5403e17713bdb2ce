// ResNet-18 for CIFAR [He et al., CVPR 2016, table 1, with the 3 x 3 stem that small images want]:
// a convolution, four groups of two blocks with w, 2w, 4w and 8w channels, the mean over the image,
// one linear layer. The study of compressed boundaries cuts it behind groups 1, 2 and 3 [Rudakov et
// al., arXiv:2401.07788].
//
// Where a group halves the image, the shortcut is a convolution with stride 2 and a batch norm
// (their option B). 11,173,962 parameters at w = 64, 701,466 at w = 16, for 10 classes.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <vector>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t from, int64_t to, int64_t side, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, side).stride(stride).padding(side / 2).bias(false));
}

// relu(norm(conv(x))).
class Stem final : public nn::Module {
 public:
  Stem(int64_t from, int64_t to) {
    conv_ = register_module("conv", convolution(from, to, 3, 1));
    norm_ = register_module("norm", nn::BatchNorm2d(to));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return torch::relu(norm_(conv_(channels_last(images))));
  }

 private:
  nn::Conv2d conv_ = nullptr;
  nn::BatchNorm2d norm_ = nullptr;
};

// relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)).
class Block final : public nn::Module {
 public:
  Block(int64_t from, int64_t to, int64_t stride) {
    conv1_ = register_module("conv1", convolution(from, to, 3, stride));
    norm1_ = register_module("norm1", nn::BatchNorm2d(to));
    conv2_ = register_module("conv2", convolution(to, to, 3, 1));
    norm2_ = register_module("norm2", nn::BatchNorm2d(to));
    if (stride == 1 && from == to) return;
    shortcut_conv_ = register_module("shortcut_conv", convolution(from, to, 1, stride));
    shortcut_norm_ = register_module("shortcut_norm", nn::BatchNorm2d(to));
  }

  // What comes over a boundary lies row-major.
  torch::Tensor forward(const torch::Tensor& inputs) {
    const torch::Tensor x = channels_last(inputs);
    const torch::Tensor y = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
    return torch::relu(y + (shortcut_conv_.is_empty() ? x : shortcut_norm_(shortcut_conv_(x))));
  }

 private:
  nn::Conv2d conv1_ = nullptr, conv2_ = nullptr, shortcut_conv_ = nullptr;
  nn::BatchNorm2d norm1_ = nullptr, norm2_ = nullptr, shortcut_norm_ = nullptr;
};

class Head final : public nn::Module {
 public:
  Head(int64_t channels, int64_t classes) {
    output_ = register_module("linear", nn::Linear(channels, classes));
  }
  torch::Tensor forward(const torch::Tensor& x) { return output_(channels_last(x).mean({2, 3})); }

 private:
  nn::Linear output_ = nullptr;
};

}  // namespace

Task make_resnet18(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 3)
    throw Error(ErrorCode::kMismatch, "model resnet18 takes images: channels, height, width");
  int64_t width = or_default(options.hidden, 64);
  std::vector<Layer> layers;
  layers.push_back(layer_of("stem", std::make_shared<Stem>(shape.input[0], width)));
  for (int group = 1; group <= 4; ++group) {
    for (int block = 1; block <= 2; ++block) {
      const bool halves = group > 1 && block == 1;
      layers.push_back(
          layer_of("group" + std::to_string(group) + "_block" + std::to_string(block),
                   std::make_shared<Block>(width, halves ? 2 * width : width, halves ? 2 : 1)));
      if (halves) width *= 2;
    }
  }
  layers.push_back(layer_of("output", std::make_shared<Head>(width, shape.classes)));
  return make_sequence(std::move(layers));
}

}  // namespace thinwire
