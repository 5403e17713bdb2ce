// Sends activations through the boundaries' codecs and back, in one process.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/compressed_forward.h"

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "train/pipeline/boundary_loop.h"
#include "train/sequence.h"

namespace thinwire {

Task compressed_task(const PipelineOptions& options, const StagePlan& plan, const Task& task,
                     uint64_t samples, uint64_t step, uint64_t steps_per_epoch) {
  auto loops = std::make_shared<std::vector<BoundaryLoop>>();
  for (size_t cut = 0; cut + 1 < plan.stages; ++cut) {
    BoundarySpec spec = boundary_options(options, cut, /*backward=*/false);
    spec.name = plan.cut_name(task, cut) + "/test";
    spec.memory = "none";
    spec.cache_budget = 0;
    spec.sample_shape = plan.crossing[cut];
    spec.samples = samples;
    spec.steps_per_epoch = steps_per_epoch;
    spec.first_step = step;
    loops->emplace_back(spec);
  }
  Task compressed = task;
  compressed.forward = [loops, &plan, layers = task.layers](const torch::Tensor& inputs) {
    torch::Tensor x = inputs;
    for (size_t stage = 0; stage < plan.stages; ++stage) {
      if (stage > 0) x = (*loops)[stage - 1].pass(x);
      for (size_t i = plan.starts[stage]; i < plan.starts[stage + 1]; ++i)
        x = run_layer(layers[i], i, x);
    }
    return x;
  };
  return compressed;
}

}  // namespace thinwire
