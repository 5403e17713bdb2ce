// Computes all ranks' parts of a sum one after the other, each through its codec and back.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/emulated_sums.h"

#include <torch/torch.h>

#include <memory>
#include <utility>

#include "train/draw_context.h"
#include "train/pipeline/boundary_loop.h"
#include "train/sequence.h"

namespace thinwire {
namespace {

class EmulatedLayer final : public LayerSums {
 public:
  // Of each pair one loop for each rank.
  explicit EmulatedLayer(std::vector<std::vector<BoundaryLoop>> loops) : loops_(std::move(loops)) {}

  torch::Tensor to_ranks(const torch::Tensor& x, size_t /*pair*/) override { return x; }
  torch::Tensor product(const SummedLinear& second, const torch::Tensor& x) override {
    std::vector<BoundaryLoop>& loops = loops_[second.pair];
    const auto ranks = static_cast<int64_t>(loops.size());
    const int64_t count = second.weight.size(1) / ranks;
    torch::Tensor sum;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const torch::Tensor part = second.to_sum(torch::linear(
          x.narrow(-1, rank * count, count), second.weight.narrow(1, rank * count, count)));
      const torch::Tensor arrived = loops[static_cast<size_t>(rank)].pass(part);
      sum = rank == 0 ? arrived : sum + arrived;
    }
    return second.from_sum(sum);
  }

 private:
  std::vector<std::vector<BoundaryLoop>> loops_;
};

}  // namespace

Task summed_task(const TensorParallelOptions& options, const TensorPlan& plan, const Task& task,
                 const std::vector<SumShapes>& shapes, const StepShape& step) {
  auto sums = std::make_shared<std::vector<std::unique_ptr<EmulatedLayer>>>(task.layers.size());
  size_t number = 0;
  for (size_t nth = 0; nth < plan.split.size(); ++nth) {
    std::vector<std::vector<BoundaryLoop>> loops;
    const size_t pairs = split_layer_of(task.layers[plan.split[nth]])->pairs().size();
    for (size_t pair = 0; pair < pairs; ++pair, ++number) {
      BoundarySpec spec = sum_spec(options, plan, nth, pair_name(task, plan, nth, pair),
                                   shapes[number], step, /*backward=*/false);
      spec.name += "/test";
      spec.memory = "none";
      std::vector<BoundaryLoop>& of_pair = loops.emplace_back();
      for (size_t rank = 0; rank < plan.ranks; ++rank) {
        of_pair.emplace_back(spec);
        spec.seed += 0x9e3779b97f4a7c15;  // as RankSum has it
      }
    }
    (*sums)[plan.split[nth]] = std::make_unique<EmulatedLayer>(std::move(loops));
  }
  Task summed = task;
  summed.forward = [sums, layers = task.layers](const torch::Tensor& inputs) {
    torch::Tensor x = inputs;
    for (size_t i = 0; i < layers.size(); ++i) {
      if ((*sums)[i]) {
        DrawScope::begin_layer(i);
        x = split_layer_of(layers[i])->forward_with(x, *(*sums)[i]);
      } else {
        x = run_layer(layers[i], i, x);
      }
    }
    return x;
  };
  return summed;
}

}  // namespace thinwire
