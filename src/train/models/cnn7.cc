// The seven-layer network of EASGD [Zhang, Choromanska, LeCun, NIPS 2015, section 5.1], which LSGD
// calls CNN7, for 28 x 28 windows of CIFAR images.
//
//   3 x 28 x 28 - conv5 64 - 24 x 24 - pool - 12 x 12 - conv5 128 - 8 x 8 - pool - 4 x 4 -
//   conv3 64 - 2 x 2 - 256 - classes
//
// 351,946 parameters for 10 classes. `width` takes the place of 64, twice it that of 128. Dropout,
// where it is asked for, follows the first fully connected layer; the papers' is 0.5.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

// What the three convolutions and two pools leave of an image's side.
constexpr int64_t side_after(int64_t side) { return ((side - 4) / 2 - 4) / 2 - 2; }

class Cnn7 final : public torch::nn::Module {
 public:
  // `places`: pixels that the convolutions leave.
  Cnn7(int64_t channels, int64_t width, int64_t places, int64_t hidden, int64_t classes,
       double dropout)
      : dropout_(dropout) {
    conv1_ = register_module("conv1", torch::nn::Conv2d(channels, width, 5));
    conv2_ = register_module("conv2", torch::nn::Conv2d(width, 2 * width, 5));
    conv3_ = register_module("conv3", torch::nn::Conv2d(2 * width, width, 3));
    hidden_ = register_module("hidden", torch::nn::Linear(width * places, hidden));
    output_ = register_module("output", torch::nn::Linear(hidden, classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::max_pool2d(torch::relu(conv1_(channels_last(images))), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    x = torch::relu(conv3_(x)).flatten(1);
    return output_(drop(hidden_(x), dropout_, is_training()));
  }

 private:
  double dropout_;
  torch::nn::Conv2d conv1_ = nullptr, conv2_ = nullptr, conv3_ = nullptr;
  torch::nn::Linear hidden_ = nullptr, output_ = nullptr;
};

}  // namespace

Task make_cnn7(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 3 || side_after(shape.input[1]) < 1 || side_after(shape.input[2]) < 1)
    throw Error(ErrorCode::kMismatch, "model cnn7 takes images of at least 24 x 24");
  const int64_t places = side_after(shape.input[1]) * side_after(shape.input[2]);
  return task_of(std::make_shared<Cnn7>(shape.input[0], or_default(options.width, 64), places,
                                        or_default(options.hidden, 256), shape.classes,
                                        options.dropout));
}

}  // namespace thinwire
