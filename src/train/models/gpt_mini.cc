// A decoder-only transformer that foretells the next token [Radford et al., GPT-2, 2019]: learned
// positions, pre-norm blocks of causal self-attention and a GELU network four times as wide, a last
// norm, and an output of its own (not tied to the embedding).
//
// By default four blocks of width 128 with heads of 32 values each: 793,344 parameters besides
// 257 for each token of the alphabet and 128 for each position. Dropout, where asked for, is behind
// the embedding and behind both halves of a block.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "train/models/builtin_models.h"
#include "train/tensor/split_layer.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

constexpr int64_t kHead = 32;  // values of one attention head

class Embedding final : public nn::Module {
 public:
  Embedding(int64_t tokens, int64_t positions, int64_t width, double dropout) : dropout_(dropout) {
    token_ = register_module("token", nn::Embedding(tokens, width));
    position_ = register_module("position", nn::Embedding(positions, width));
  }

  // samples x tokens -> samples x tokens x width.
  torch::Tensor forward(const torch::Tensor& codes) {
    const torch::Tensor places = torch::arange(codes.size(1), codes.options().dtype(torch::kLong));
    return drop(token_(codes) + position_(places), dropout_, is_training());
  }

 private:
  double dropout_;
  nn::Embedding token_ = nullptr, position_ = nullptr;
};

// Ranks share its heads and the units of its GELU network: SplitLayer.
class Block final : public SplitLayer {
 public:
  // `heads`: all, or a rank's part of them.
  Block(int64_t width, int64_t heads, double dropout)
      : width_(width), heads_(heads), dropout_(dropout) {
    const int64_t inner = heads * kHead;
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    attend_ = register_module("attend", nn::Linear(width, 3 * inner));
    project_ = register_module("project", nn::Linear(inner, width));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    widen_ = register_module("widen", nn::Linear(width, 4 * inner));
    narrow_ = register_module("narrow", nn::Linear(4 * inner, width));
  }

  torch::Tensor forward(const torch::Tensor& inputs) { return forward_in(inputs, nullptr); }
  torch::Tensor forward_with(const torch::Tensor& inputs, LayerSums& sums) override {
    return forward_in(inputs, &sums);
  }

  int64_t heads() const override { return heads_; }
  int64_t features() const override { return width_; }
  std::vector<std::string> pairs() const override { return {"attention", "mlp"}; }
  std::vector<SplitWeight> split_weights() const override {
    return {{.name = "attend.weight", .dim = 0, .blocks = 3},
            {.name = "attend.bias", .dim = 0, .blocks = 3},
            {.name = "project.weight", .dim = 1},
            {.name = "widen.weight", .dim = 0},
            {.name = "widen.bias", .dim = 0},
            {.name = "narrow.weight", .dim = 1}};
  }
  std::vector<std::string> summed_weights() const override {
    if (codes_.empty()) return {};
    return {"project_encoder.weight", "narrow_encoder.weight"};
  }
  std::shared_ptr<SplitLayer> part(int64_t ranks) const override {
    auto part = std::make_shared<Block>(width_, heads_ / ranks, dropout_);
    if (!codes_.empty()) part->add_autoencoders(codes_[0].first->options.out_features());
    return part;
  }

  void add_autoencoders(int64_t code) override {
    for (const char* of : {"project", "narrow"}) {
      const std::string name(of);
      codes_.emplace_back(register_module(name + "_encoder",
                                          nn::Linear(nn::LinearOptions(width_, code).bias(false))),
                          register_module(name + "_decoder",
                                          nn::Linear(nn::LinearOptions(code, width_).bias(false))));
    }
  }
  std::vector<std::pair<nn::Linear, nn::Linear>> autoencoders() const override { return codes_; }

 private:
  torch::Tensor forward_in(const torch::Tensor& inputs, LayerSums* sums) {
    const auto shared = [&](const torch::Tensor& x, size_t pair) {
      return sums != nullptr ? sums->to_ranks(x, pair) : x;
    };
    const torch::Tensor heads = attention(shared(norm1_(inputs), 0));
    const torch::Tensor x =
        inputs + drop(product(project_, heads, 0, sums), dropout_, is_training());
    const torch::Tensor units = torch::gelu(widen_(shared(norm2_(x), 1)));
    return x + drop(product(narrow_, units, 1, sums), dropout_, is_training());
  }

  // The second matrix of a pair.
  torch::Tensor product(nn::Linear& second, const torch::Tensor& x, size_t pair, LayerSums* sums) {
    if (sums == nullptr && codes_.empty()) return second(x);
    SummedLinear linear{
        .pair = pair, .weight = second->weight, .bias = second->bias, .encoder = {}, .decoder = {}};
    if (!codes_.empty()) {
      linear.encoder = codes_[pair].first->weight;
      linear.decoder = codes_[pair].second->weight;
    }
    if (sums != nullptr) return sums->product(linear, x);
    return linear.from_sum(linear.to_sum(torch::linear(x, linear.weight)));
  }

  torch::Tensor attention(const torch::Tensor& x) {
    const auto parts = attend_(x)
                           .view({x.size(0), x.size(1), 3 * heads_, kHead})
                           .transpose(1, 2)
                           .chunk(3, 1);  // queries, keys, values: samples x heads x tokens x kHead
    const torch::Tensor y = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    return y.transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * kHead});
  }

  int64_t width_, heads_;
  double dropout_;
  nn::LayerNorm norm1_ = nullptr, norm2_ = nullptr;
  nn::Linear attend_ = nullptr, project_ = nullptr, widen_ = nullptr, narrow_ = nullptr;
  std::vector<std::pair<nn::Linear, nn::Linear>> codes_;  // encoders and decoders, by pair
};

class Head final : public nn::Module {
 public:
  Head(int64_t width, int64_t tokens) {
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    output_ = register_module("linear", nn::Linear(width, tokens));
  }
  torch::Tensor forward(const torch::Tensor& x) { return output_(norm_(x)); }

 private:
  nn::LayerNorm norm_ = nullptr;
  nn::Linear output_ = nullptr;
};

}  // namespace

SharedLayers shared_layers_of_gpt_mini(const ModelOptions& options) {
  const int64_t width = or_default(options.hidden, 128), blocks = or_default(options.layers, 4);
  if (width % kHead != 0)
    throw Error(ErrorCode::kBadOption, "model gpt-mini: hidden must be a multiple of " +
                                           std::to_string(kHead) + ", the width of a head");
  return {.layers = blocks, .heads = width / kHead, .features = width};
}

Task make_gpt_mini(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 1 || !shape.categories.empty())
    throw Error(ErrorCode::kMismatch, "model gpt-mini takes text: one dimension of tokens");
  const auto [blocks, heads, width] = shared_layers_of_gpt_mini(options);
  std::vector<Layer> layers;
  layers.push_back(layer_of("embedding", std::make_shared<Embedding>(shape.classes, shape.input[0],
                                                                     width, options.dropout)));
  for (int64_t i = 1; i <= blocks; ++i)
    layers.push_back(layer_of("block" + std::to_string(i),
                              std::make_shared<Block>(width, heads, options.dropout)));
  layers.push_back(layer_of("output", std::make_shared<Head>(width, shape.classes)));
  return make_sequence(std::move(layers));
}

}  // namespace thinwire
