// For tests: a network of linear layers in stages as plain loops in double, to compare decoupled
// stages with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace thinwire {

using PlainVector = std::vector<double>;

// y = w x + b, or its positive part; one sample after another, whose gradients are added up.
class PlainLayer {
 public:
  PlainLayer(const torch::Tensor& weight, const torch::Tensor& bias, bool rectified)
      : inputs_(static_cast<size_t>(weight.size(1))),
        rectified_(rectified),
        weight_(values_of(weight)),
        bias_(values_of(bias)),
        weight_gradient_(weight_.size()),
        bias_gradient_(bias_.size()) {}

  PlainVector forward(const PlainVector& x) const {
    PlainVector y = bias_;
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t j = 0; j < inputs_; ++j) y[i] += weight_[i * inputs_ + j] * x[j];
      if (rectified_) y[i] = std::max(0.0, y[i]);
    }
    return y;
  }

  // The gradient with respect to x of what has this one with respect to y = forward(x).
  PlainVector backward(const PlainVector& x, const PlainVector& y, const PlainVector& gradient) {
    PlainVector back(inputs_);
    for (size_t i = 0; i < y.size(); ++i) {
      if (rectified_ && y[i] <= 0) continue;
      bias_gradient_[i] += gradient[i];
      for (size_t j = 0; j < inputs_; ++j) {
        weight_gradient_[i * inputs_ + j] += gradient[i] * x[j];
        back[j] += gradient[i] * weight_[i * inputs_ + j];
      }
    }
    return back;
  }

  void step(double rate) {
    descend(weight_, weight_gradient_, rate);
    descend(bias_, bias_gradient_, rate);
  }

  const PlainVector& weight() const { return weight_; }
  const PlainVector& bias() const { return bias_; }

 private:
  static PlainVector values_of(const torch::Tensor& tensor) {
    const torch::Tensor values = tensor.detach().to(torch::kFloat64).contiguous();
    const auto* begin = values.const_data_ptr<double>();
    return {begin, begin + values.numel()};
  }
  static void descend(PlainVector& values, PlainVector& gradient, double rate) {
    for (size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradient[i];
    std::fill(gradient.begin(), gradient.end(), 0.0);
  }

  size_t inputs_;
  bool rectified_;
  PlainVector weight_, bias_, weight_gradient_, bias_gradient_;
};

struct PlainStage {
  std::vector<PlainLayer> layers;

  // The input of each layer, and the last one's output.
  std::vector<PlainVector> forward(const PlainVector& input) const {
    std::vector<PlainVector> passing = {input};
    for (const PlainLayer& layer : layers) passing.push_back(layer.forward(passing.back()));
    return passing;
  }
  PlainVector backward(const std::vector<PlainVector>& passing, PlainVector gradient) {
    for (size_t i = layers.size(); i-- > 0;)
      gradient = layers[i].backward(passing[i], passing[i + 1], gradient);
    return gradient;
  }
  void step(double rate) {
    for (PlainLayer& layer : layers) layer.step(rate);
  }
};

// Of `share` times the cross entropy.
inline PlainVector cross_entropy_gradient(const PlainVector& outputs, size_t target, double share) {
  PlainVector gradient = outputs;
  double sum = 0;
  for (double& value : gradient) sum += value = std::exp(value);
  for (double& value : gradient) value *= share / sum;
  gradient[target] -= share;
  return gradient;
}

}  // namespace thinwire
