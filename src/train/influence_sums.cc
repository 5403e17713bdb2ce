// Goes through the samples in blocks, once for each network.
// SPDX-License-Identifier: Apache-2.0
#include "train/influence_sums.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "train/last_layer.h"

namespace thinwire {
namespace {

SampleSums sums_of(uint64_t samples) {
  const auto count = static_cast<int64_t>(samples);
  return {.self = torch::zeros({count}, torch::kFloat64),
          .labels = torch::zeros({count}, torch::kInt64),
          .predicted = torch::zeros({count}, torch::kInt64),
          .probability = torch::zeros({count}, torch::kFloat64)};
}

// Calls body(first, factors) for each block of the samples `ids`, and adds to the sums of these.
void for_blocks(const LastLayer& layer, const Dataset& data, std::span<const uint64_t> ids,
                uint64_t block, double rate, SampleSums& sums,
                const std::function<void(int64_t first, const GradientFactors&)>& body) {
  for (size_t first = 0; first < ids.size(); first += block) {
    const size_t count = std::min<size_t>(block, ids.size() - first);
    const Batch batch = data.fetch(ids.subspan(first, count), {});
    const GradientFactors factors = layer.factors(batch);
    if (!factors.inputs.isfinite().all().item<bool>() ||
        !factors.residuals.isfinite().all().item<bool>())
      throw Error(ErrorCode::kNonFinite, "the network's outputs are not finite");
    const auto begin = static_cast<int64_t>(first), end = static_cast<int64_t>(first + count);
    const auto part = [&](const torch::Tensor& all) { return all.slice(0, begin, end); };
    part(sums.self).add_(gradient_squares(factors), rate);
    part(sums.labels).copy_(batch.targets);
    part(sums.predicted).copy_(factors.predicted);
    part(sums.probability)
        .copy_(factors.residuals.gather(1, batch.targets.unsqueeze(1)).squeeze(1) + 1);
    body(begin, factors);
  }
}

}  // namespace

InfluenceSums::InfluenceSums(const Dataset& training, const Dataset& others,
                             std::vector<uint64_t> of, uint64_t block)
    : training_data_(training),
      others_(others),
      ids_(std::move(of)),
      block_(block),
      training_(sums_of(training.size())),
      of_(sums_of(ids_.size())),
      products_(
          torch::zeros({static_cast<int64_t>(ids_.size()), static_cast<int64_t>(training.size())},
                       torch::kFloat64)) {}

void InfluenceSums::add(const Task& task, double rate) {
  const torch::NoGradGuard no_grad;
  const LastLayer layer(task);
  std::vector<GradientFactors> of;
  for_blocks(layer, others_, ids_, block_, rate, of_,
             [&](int64_t, const GradientFactors& factors) { of.push_back(factors); });
  std::vector<uint64_t> all(training_data_.size());
  std::iota(all.begin(), all.end(), uint64_t{0});
  for_blocks(layer, training_data_, all, block_, rate, training_,
             [&](int64_t first, const GradientFactors& factors) {
               int64_t row = 0;
               for (const GradientFactors& rows : of) {
                 const int64_t height = rows.inputs.size(0), width = factors.inputs.size(0);
                 products_.slice(0, row, row + height)
                     .slice(1, first, first + width)
                     .add_(gradient_products(rows, factors), rate);
                 row += height;
               }
             });
}

}  // namespace thinwire
