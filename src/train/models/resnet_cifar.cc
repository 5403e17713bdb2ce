// ResNet-8 and ResNet-20 for CIFAR [He et al., CVPR 2016, section 4.2]: a 3 x 3 convolution, three
// stages of n blocks with w, 2w and 4w channels, the mean over the image, one linear layer. The
// paper has w = 16 and networks of 6n + 2 layers; n is 1 and 3 here.
//
// Where a stage halves the image and doubles the channels, the shortcut takes every other pixel and
// fills up with zero channels (their option A), so it has no parameters. At w = 16 and 10 classes
// ResNet-20 has 269,722 parameters, the paper's 0.27 M, and ResNet-8 75,290. Weights are drawn as
// everywhere in thinwire (initialise.cc), where the paper draws normal numbers; batch norm makes
// their scale matter little.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t from, int64_t to, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false));
}

// relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)).
class Block final : public nn::Module {
 public:
  Block(int64_t from, int64_t to, int64_t stride) : added_channels_(to - from), stride_(stride) {
    conv1_ = register_module("conv1", convolution(from, to, stride));
    norm1_ = register_module("norm1", nn::BatchNorm2d(to));
    conv2_ = register_module("conv2", convolution(to, to, 1));
    norm2_ = register_module("norm2", nn::BatchNorm2d(to));
  }

  // What comes over a cut of a pipeline lies row-major.
  torch::Tensor forward(const torch::Tensor& inputs) {
    const torch::Tensor x = channels_last(inputs);
    const torch::Tensor y = torch::relu(norm1_(conv1_(x)));
    return torch::relu(norm2_(conv2_(y)) + shortcut(x));
  }

 private:
  torch::Tensor shortcut(const torch::Tensor& x) const {
    if (added_channels_ == 0) return x;
    const torch::Tensor fewer =
        x.slice(2, 0, c10::nullopt, stride_).slice(3, 0, c10::nullopt, stride_);
    return torch::constant_pad_nd(fewer, {0, 0, 0, 0, 0, added_channels_});
  }

  int64_t added_channels_;
  int64_t stride_;
  nn::Conv2d conv1_ = nullptr, conv2_ = nullptr;
  nn::BatchNorm2d norm1_ = nullptr, norm2_ = nullptr;
};

Task make_resnet(const ModelOptions& options, const SampleShape& shape, int blocks_per_stage) {
  if (shape.input.size() != 3)
    throw Error(ErrorCode::kMismatch,
                "model " + options.name + " takes images: channels, height, width");
  int64_t width = or_default(options.width, 16);
  nn::Conv2d conv = convolution(shape.input[0], width, 1);
  nn::BatchNorm2d norm(width);
  std::vector<Layer> layers = {
      {.name = "conv",
       .module = conv.ptr(),
       .forward = [conv](const torch::Tensor& x) mutable { return conv(channels_last(x)); }},
      {.name = "norm", .module = norm.ptr(), .forward = [norm](const torch::Tensor& x) mutable {
         return torch::relu(norm(channels_last(x)));
       }}};
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 1; block <= blocks_per_stage; ++block) {
      const bool halves = stage > 1 && block == 1;
      layers.push_back(
          layer_of("stage" + std::to_string(stage) + "_block" + std::to_string(block),
                   std::make_shared<Block>(width, halves ? 2 * width : width, halves ? 2 : 1)));
      if (halves) width *= 2;
    }
  }
  nn::Linear output(width, shape.classes);
  layers.push_back({.name = "output",
                    .module = output.ptr(),
                    .forward = [output](const torch::Tensor& x) mutable {
                      return output(channels_last(x).mean({2, 3}));
                    }});
  return make_sequence(std::move(layers));
}

}  // namespace

Task make_resnet8(const ModelOptions& options, const SampleShape& shape) {
  return make_resnet(options, shape, 1);
}

Task make_resnet20(const ModelOptions& options, const SampleShape& shape) {
  return make_resnet(options, shape, 3);
}

}  // namespace thinwire
