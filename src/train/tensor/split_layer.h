// SplitLayer: a layer whose matrices ranks share, so that each computes a part of it: tensor
// parallelism [Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053, section 3].
//
//   x -- copied to ranks --> [ x W1_r -> f -> W2_r ] -- summed over ranks --> y
//
// W1 is split by columns: rank r has some of its outputs. W2 is split by rows: rank r has the
// inputs that come from them. So nothing crosses between W1 and W2. Forward, the partial products
// with W2 are summed; backward, the gradients of x are. These are the two places of a pair at which
// ranks exchange tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/torch.h"

namespace thinwire {

// The second matrix of a pair, as libtorch has weights: outputs x inputs. With an autoencoder [Bian
// et al., MLSys 2024, arXiv:2301.02654] ranks sum codes: the code of a partial product p is p E,
// and the sum of all codes times D is the product.
struct SummedLinear {
  size_t pair = 0;  // number of the pair in its layer
  torch::Tensor weight, bias;
  torch::Tensor encoder, decoder;  // transposes of E and D; undefined: none

  // What of x W^T is summed, and what is made of the sum.
  torch::Tensor to_sum(const torch::Tensor& product) const {
    return encoder.defined() ? torch::linear(product, encoder) : product;
  }
  torch::Tensor from_sum(const torch::Tensor& sum) const {
    return (decoder.defined() ? torch::linear(sum, decoder) : sum) + bias;
  }
};

// What ranks exchange in one layer.
class LayerSums {
 public:
  virtual ~LayerSums() = default;

  // x, in front of the first matrix of a pair. In the backward pass: the sum over ranks of the
  // gradients.
  virtual torch::Tensor to_ranks(const torch::Tensor& x, size_t pair) = 0;

  // x W^T, summed over ranks, + b. In the backward pass each rank gets the gradient as it is.
  virtual torch::Tensor product(const SummedLinear& second, const torch::Tensor& x) = 0;
};

// One weight, of whose dimension `dim` each rank has a part: as many adjacent rows, or columns, of
// each of `blocks` equal blocks as all other ranks. (Queries, keys and values are three blocks of
// one matrix.)
struct SplitWeight {
  std::string name;
  int64_t dim = 0;
  int64_t blocks = 1;
};

class SplitLayer : public torch::nn::Module {
 public:
  // On one rank's part or, with sums that stand for all ranks, on the whole layer.
  virtual torch::Tensor forward_with(const torch::Tensor& inputs, LayerSums& sums) = 0;

  virtual int64_t heads() const = 0;                   // which the ranks must divide
  virtual std::vector<std::string> pairs() const = 0;  // their names
  virtual std::vector<SplitWeight> split_weights() const = 0;
  // Weights that every rank has whole, and whose gradients are sums over ranks.
  virtual std::vector<std::string> summed_weights() const = 0;

  // A layer with the shapes of one of `ranks` parts, whose weights have no values yet. REQUIRES:
  // heads() % ranks == 0.
  virtual std::shared_ptr<SplitLayer> part(int64_t ranks) const = 0;

  // Gives each pair an encoder and a decoder, with codes of `code` values. A layer that has them
  // keeps them.
  virtual void add_autoencoders(int64_t code) = 0;
  // Of each pair, encoder and decoder; empty without.
  virtual std::vector<std::pair<torch::nn::Linear, torch::nn::Linear>> autoencoders() const = 0;
  virtual int64_t features() const = 0;  // of what is summed, without an autoencoder
};

// The part of `rank` in a whole weight: a view of it, in which the split dimension is two.
inline torch::Tensor part_of(const torch::Tensor& whole, const SplitWeight& split, int64_t ranks,
                             int64_t rank) {
  const torch::Tensor blocks = whole.unflatten(split.dim, {split.blocks, -1});
  const int64_t count = blocks.size(split.dim + 1) / ranks;
  return blocks.narrow(split.dim + 1, rank * count, count);
}

// Null for a layer that every rank has whole.
inline SplitLayer* split_layer_of(const Layer& layer) {
  return dynamic_cast<SplitLayer*>(layer.module.get());
}

}  // namespace thinwire
