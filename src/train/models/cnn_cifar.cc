// A small network for CIFAR-10 after Krizhevsky's cuda-convnet [2012], in the form known as
// cifar10_quick: three 5 x 5 convolutions and two fully connected layers.
//
//   3 x 32 x 32 - conv 32 - max pool - 16 x 16 - conv 32 - mean pool - 8 x 8 - conv 64 -
//   mean pool - 4 x 4 - 64 - classes
//
// 145,578 parameters for 10 classes. Pools are 3 x 3 with stride 2, windows over the edge included.
// ReLU also follows the first fully connected layer, where cifar10_quick has none.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

torch::Tensor mean_pool(const torch::Tensor& x) {
  return torch::avg_pool2d(x, 3, 2, /*padding=*/0, /*ceil_mode=*/true);
}

// What such a pool leaves of a side.
constexpr int64_t pooled(int64_t side) { return side / 2; }

class CnnCifar final : public torch::nn::Module {
 public:
  CnnCifar(int64_t channels, int64_t features, int64_t hidden, int64_t classes, double dropout)
      : dropout_(dropout) {
    conv1_ = register_module("conv1", convolution(channels, 32));
    conv2_ = register_module("conv2", convolution(32, 32));
    conv3_ = register_module("conv3", convolution(32, 64));
    hidden_ = register_module("hidden", torch::nn::Linear(features, hidden));
    output_ = register_module("output", torch::nn::Linear(hidden, classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = conv1_(channels_last(images));
    x = torch::relu(torch::max_pool2d(x, 3, 2, /*padding=*/0, /*dilation=*/1, /*ceil_mode=*/true));
    x = mean_pool(torch::relu(conv2_(x)));
    x = mean_pool(torch::relu(conv3_(x))).flatten(1);
    return output_(drop(torch::relu(hidden_(x)), dropout_, is_training()));
  }

 private:
  static torch::nn::Conv2d convolution(int64_t from, int64_t to) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 5).padding(2));
  }

  double dropout_;
  torch::nn::Conv2d conv1_ = nullptr, conv2_ = nullptr, conv3_ = nullptr;
  torch::nn::Linear hidden_ = nullptr, output_ = nullptr;
};

}  // namespace

Task make_cnn_cifar(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 3 || shape.input[1] < 16 || shape.input[2] < 16)
    throw Error(ErrorCode::kMismatch, "model cnn-cifar takes images of at least 16 x 16");
  const int64_t height = pooled(pooled(pooled(shape.input[1])));
  const int64_t width = pooled(pooled(pooled(shape.input[2])));
  return task_of(std::make_shared<CnnCifar>(shape.input[0], 64 * height * width,
                                            or_default(options.hidden, 64), shape.classes,
                                            options.dropout));
}

}  // namespace thinwire
