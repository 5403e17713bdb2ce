// A LeNet for 28 x 28 images [LeCun et al., 1998, with today's widths]: the MNIST-CNN of AdaComp
// has the same plan, two 5 x 5 convolutions and two fully connected layers.
//
//   1 x 28 x 28 - conv 32 - 24 x 24 - pool - 12 x 12 - conv 64 - 8 x 8 - pool - 4 x 4
//   - 512 - classes
//
// 582,026 parameters for 10 classes, 90 % of them in the first fully connected layer.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

// What a convolution and a pooling leave of an image's side.
constexpr int64_t side_after(int64_t side) { return (side - 4) / 2; }

class CnnMnist final : public torch::nn::Module {
 public:
  CnnMnist(int64_t channels, int64_t features, int64_t hidden, int64_t classes, double dropout)
      : dropout_(dropout) {
    conv1_ = register_module("conv1", torch::nn::Conv2d(channels, 32, 5));
    conv2_ = register_module("conv2", torch::nn::Conv2d(32, 64, 5));
    hidden_ = register_module("hidden", torch::nn::Linear(features, hidden));
    output_ = register_module("output", torch::nn::Linear(hidden, classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::max_pool2d(torch::relu(conv1_(images)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2).flatten(1);
    return output_(drop(torch::relu(hidden_(x)), dropout_, is_training()));
  }

 private:
  double dropout_;
  torch::nn::Conv2d conv1_ = nullptr, conv2_ = nullptr;
  torch::nn::Linear hidden_ = nullptr, output_ = nullptr;
};

}  // namespace

Task make_cnn_mnist(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 3 || shape.input[1] < 16 || shape.input[2] < 16)
    throw Error(ErrorCode::kMismatch, "model cnn-mnist takes images of at least 16 x 16");
  const int64_t height = side_after(side_after(shape.input[1]));
  const int64_t width = side_after(side_after(shape.input[2]));
  return task_of(std::make_shared<CnnMnist>(shape.input[0], 64 * height * width,
                                            or_default(options.hidden, 512), shape.classes,
                                            options.dropout));
}

}  // namespace thinwire
