// A decoder-only transformer that foretells the next token [Radford et al., GPT-2, 2019]: learned
// positions, pre-norm blocks of causal self-attention and a GELU network four times as wide, a last norm,
// and an output of its own (not tied to the embedding).
//
// By default four blocks of width 128 with heads of 32 values each: 793,344 parameters besides
// 257 for each token of the alphabet and 128 for each position. Dropout, where asked for, is behind
// the embedding and behind both halves of a block.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <vector>

#include "train/models/builtin_models.h"

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

class Block final : public nn::Module {
 public:
  Block(int64_t width, double dropout) : heads_(width / kHead), dropout_(dropout) {
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    attend_ = register_module("attend", nn::Linear(width, 3 * width));
    project_ = register_module("project", nn::Linear(width, width));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    widen_ = register_module("widen", nn::Linear(width, 4 * width));
    narrow_ = register_module("narrow", nn::Linear(4 * width, width));
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    const torch::Tensor x =
        inputs + drop(project_(attention(norm1_(inputs))), dropout_, is_training());
    return x + drop(narrow_(torch::gelu(widen_(norm2_(x)))), dropout_, is_training());
  }

 private:
  torch::Tensor attention(const torch::Tensor& x) {
    const auto parts = attend_(x)
                           .view({x.size(0), x.size(1), 3 * heads_, kHead})
                           .transpose(1, 2)
                           .chunk(3, 1);  // queries, keys, values: samples x heads x tokens x kHead
    const torch::Tensor y = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    return y.transpose(1, 2).reshape(x.sizes());
  }

  int64_t heads_;
  double dropout_;
  nn::LayerNorm norm1_ = nullptr, norm2_ = nullptr;
  nn::Linear attend_ = nullptr, project_ = nullptr, widen_ = nullptr, narrow_ = nullptr;
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

Task make_gpt_mini(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 1 || !shape.categories.empty())
    throw Error(ErrorCode::kMismatch, "model gpt-mini takes text: one dimension of tokens");
  const int64_t width = or_default(options.hidden, 128), blocks = or_default(options.layers, 4);
  if (width % kHead != 0)
    throw Error(ErrorCode::kBadOption, "model gpt-mini: hidden must be a multiple of " +
                                           std::to_string(kHead) + ", the width of a head");
  std::vector<Layer> layers;
  layers.push_back(layer_of("embedding", std::make_shared<Embedding>(shape.classes, shape.input[0],
                                                                     width, options.dropout)));
  for (int64_t i = 1; i <= blocks; ++i)
    layers.push_back(
        layer_of("block" + std::to_string(i), std::make_shared<Block>(width, options.dropout)));
  layers.push_back(layer_of("output", std::make_shared<Head>(width, shape.classes)));
  return make_sequence(std::move(layers));
}

}  // namespace thinwire
