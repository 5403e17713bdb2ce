// Measures batch norm's statistics by forward passes, with equal weight for every batch.
// SPDX-License-Identifier: Apache-2.0
#include "train/norm_statistics.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "train/draw_context.h"
#include "train/timetable.h"

namespace thinwire {
namespace {

// Every batch norm under `module`, of images, sequences or vectors.
template <typename Visit>
void each_norm(torch::nn::Module& module, const Visit& visit) {
  for (const auto& child : module.modules()) {
    if (auto* vectors = child->as<torch::nn::BatchNorm1dImpl>()) visit(*vectors);
    if (auto* images = child->as<torch::nn::BatchNorm2dImpl>()) visit(*images);
    if (auto* volumes = child->as<torch::nn::BatchNorm3dImpl>()) visit(*volumes);
  }
}

// libtorch takes plain means of batches where there is no momentum.
class PlainMeans {
 public:
  explicit PlainMeans(torch::nn::Module& module)
      : module_(module), training_(module.is_training()) {
    module_.train();
    each_norm(module_, [&](auto& norm) {
      before_.push_back(norm.options.momentum());
      norm.options.momentum(c10::nullopt);
      norm.reset_running_stats();
    });
  }
  ~PlainMeans() {
    size_t i = 0;
    each_norm(module_, [&](auto& norm) { norm.options.momentum(before_[i++]); });
    module_.train(training_);
  }
  PlainMeans(const PlainMeans&) = delete;
  PlainMeans& operator=(const PlainMeans&) = delete;

  bool any() const { return !before_.empty(); }

 private:
  torch::nn::Module& module_;
  bool training_;
  std::vector<std::optional<double>> before_;
};

}  // namespace

void measure_norms(Group& group, const Task& task, const Dataset& data, uint64_t samples,
                   uint64_t batch, OwnBuffers& buffers) {
  const PlainMeans means(*task.module);
  if (!means.any()) return;
  const torch::NoGradGuard no_grad;
  samples = std::min(samples, data.size());
  batch = std::min(batch, samples);
  // Of equal weight, so of equal size; every rank has as many, at least one.
  const auto ranks = static_cast<uint64_t>(group.size());
  const uint64_t each = std::max<uint64_t>(1, samples / batch / ranks);
  std::vector<uint64_t> ids(batch);
  for (uint64_t i = 0; i < each; ++i) {
    const uint64_t number = static_cast<uint64_t>(group.rank()) * each + i;
    for (uint64_t j = 0; j < batch; ++j) ids[j] = (number * batch + j) % data.size();
    const DrawScope draws({.seed = 0, .step = 0, .first = number * batch, .rows = batch});
    task.forward(data.fetch(ids, {}).inputs);
  }
  buffers.average(group);
}

}  // namespace thinwire
