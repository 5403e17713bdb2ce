// Splits the layers of a network that can be split, and puts them together again.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/rank_parts.h"

#include <algorithm>
#include <utility>

#include "train/draw_context.h"
#include "train/named_tensors.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw AgreedError(ErrorCode::kBadOption, why); }

torch::Tensor parameter_of(const torch::nn::Module& module, const std::string& name) {
  return module.named_parameters()[name];
}

}  // namespace

TensorPlan plan_tensors(const TensorParallelOptions& options, const Group& group,
                        const Task& task) {
  const auto workers = static_cast<size_t>(group.size());
  if (workers % options.ranks != 0)
    refuse("tensor.ranks: " + std::to_string(options.ranks) +
           " ranks need as many workers, or a multiple of that, not " + std::to_string(workers));
  TensorPlan plan;
  plan.ranks = options.ranks;
  plan.rank = static_cast<size_t>(group.rank()) % plan.ranks;
  plan.replicas = workers / plan.ranks;
  plan.replica = static_cast<size_t>(group.rank()) / plan.ranks;
  for (size_t i = 0; i < task.layers.size(); ++i) {
    const SplitLayer* layer = split_layer_of(task.layers[i]);
    if (layer == nullptr) continue;
    if (layer->heads() % static_cast<int64_t>(plan.ranks) != 0)
      refuse("tensor.ranks: " + std::to_string(plan.ranks) + " ranks cannot share the " +
             std::to_string(layer->heads()) + " heads of layer '" + task.layers[i].name +
             "'; choose a number that divides them");
    plan.split.push_back(i);
  }
  if (plan.split.empty())
    refuse(
        "tensor.ranks: this network has no layers that ranks can share; of thinwire's own, "
        "gpt-mini has");
  if (options.layers > plan.split.size())
    refuse("tensor.layers: " + std::to_string(options.layers) + " layers, of " +
           std::to_string(plan.split.size()) + " that ranks share; 0 stands for all");
  plan.compressed = options.layers == 0 ? plan.split.size() : options.layers;
  return plan;
}

RankParts::RankParts(const TensorPlan& plan, const Task& task)
    : plan_(plan),
      task_(task),
      module_(std::make_shared<torch::nn::Module>()),
      parts_(task.layers.size()) {
  const torch::NoGradGuard no_grad;
  const auto ranks = static_cast<int64_t>(plan.ranks), rank = static_cast<int64_t>(plan.rank);
  split_weights_.reserve(plan.split.size());  // pieces point into it
  for (size_t i = 0; i < task.layers.size(); ++i) {
    const Layer& layer = task.layers[i];
    const SplitLayer* whole = split_layer_of(layer);
    if (whole == nullptr) {
      if (layer.module) module_->register_module(layer.name, layer.module);
      continue;
    }
    parts_[i] = whole->part(ranks);
    parts_[i]->train(whole->is_training());
    module_->register_module(layer.name, std::static_pointer_cast<torch::nn::Module>(parts_[i]));
    const std::vector<SplitWeight>& splits = split_weights_.emplace_back(whole->split_weights());
    for (const auto& item : whole->named_parameters()) {
      Piece piece{.whole = item.value(), .part = parameter_of(*parts_[i], item.key())};
      const auto split = std::find_if(splits.begin(), splits.end(), [&](const SplitWeight& one) {
        return one.name == item.key();
      });
      if (split == splits.end()) {
        piece.part.copy_(piece.whole);
      } else {
        piece.split = &*split;
        part_of(piece.part, *split, 1, 0).copy_(part_of(piece.whole, *split, ranks, rank));
        own_.push_back(piece.part);
      }
      pieces_.push_back(std::move(piece));
    }
  }
}

torch::Tensor RankParts::forward(const torch::Tensor& inputs,
                                 std::span<LayerSums* const> sums) const {
  torch::Tensor x = inputs;
  for (size_t i = 0; i < task_.layers.size(); ++i) {
    if (parts_[i]) {
      DrawScope::begin_layer(i);
      x = parts_[i]->forward_with(x, *sums[i]);
    } else {
      x = run_layer(task_.layers[i], i, x);
    }
  }
  return x;
}

std::vector<torch::Tensor> RankParts::summed_weights() const {
  std::vector<torch::Tensor> weights;
  for (const size_t i : plan_.split)
    for (const std::string& name : parts_[i]->summed_weights())
      weights.push_back(parameter_of(*parts_[i], name));
  return weights;
}

std::vector<torch::Tensor> RankParts::common_weights() const {
  std::vector<torch::Tensor> common;
  for (const torch::Tensor& weight : module_->parameters())
    if (std::none_of(own_.begin(), own_.end(),
                     [&](const torch::Tensor& own) { return own.is_same(weight); }))
      common.push_back(weight);
  return common;
}

void RankParts::show_all(Group& ranks) const {
  const torch::NoGradGuard no_grad;
  for (const Piece& piece : pieces_) {
    if (piece.split == nullptr) {
      piece.whole.copy_(piece.part);
      continue;
    }
    const torch::Tensor one = piece.part.detach().clone();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == ranks.rank()) one.copy_(piece.part);
      broadcast_tensor(ranks, {"part", one}, rank);
      part_of(piece.whole, *piece.split, ranks.size(), rank)
          .copy_(part_of(one, *piece.split, 1, 0));
    }
  }
}

}  // namespace thinwire
