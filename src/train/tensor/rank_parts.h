// RankParts: the network of one tensor-parallel rank: its parts of split layers, and all other
// layers whole.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/torch.h"
#include "train/tensor/split_layer.h"
#include "train/tensor/tensor_options.h"

namespace thinwire {

// Rank r is part r % ranks of replica r / ranks: the parts of one network are neighbours by rank.
struct TensorPlan {
  size_t ranks = 1, rank = 0;
  size_t replicas = 1, replica = 0;
  std::vector<size_t> split;  // numbers of the layers that are split
  size_t compressed = 0;      // so many of them, the last ones, are compressed

  bool compresses(size_t nth_split) const noexcept {
    return nth_split + compressed >= split.size();
  }
  int first_rank() const noexcept { return static_cast<int>(replica * ranks); }
};

// Throws AgreedError(kBadOption), on all ranks, for ranks that are not whole networks, for a
// network without layers that can be split, and for ranks or layers that do not go with it.
TensorPlan plan_tensors(const TensorParallelOptions& options, const Group& group, const Task& task);

class RankParts {
 public:
  // Takes its parts of the weights that the task's module has. The task outlives this.
  RankParts(const TensorPlan& plan, const Task& task);

  // The weights that this rank trains, under the names that they have in the whole network.
  torch::nn::Module& module() const noexcept { return *module_; }

  // `sums` has one for each layer of the network; null for those that are not split.
  torch::Tensor forward(const torch::Tensor& inputs, std::span<LayerSums* const> sums) const;

  // Weights of the module whose gradients are parts of sums over ranks.
  std::vector<torch::Tensor> summed_weights() const;
  // Those of which this rank has a part, and no other rank the same.
  std::vector<torch::Tensor> own_weights() const { return own_; }
  // All others.
  std::vector<torch::Tensor> common_weights() const;

  // Writes the weights into the task's module, those of the other ranks of the network too. Called
  // by all of its ranks.
  void show_all(Group& ranks) const;

 private:
  struct Piece {
    torch::Tensor whole, part;
    const SplitWeight* split = nullptr;  // null: the rank has all of it
  };
  const TensorPlan plan_;
  const Task& task_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<std::shared_ptr<SplitLayer>> parts_;       // by layer of the network
  std::vector<std::vector<SplitWeight>> split_weights_;  // by split layer
  std::vector<Piece> pieces_;                            // of split layers
  std::vector<torch::Tensor> own_;
};

}  // namespace thinwire
