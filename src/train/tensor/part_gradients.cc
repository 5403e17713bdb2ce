// Sums and norms of gradients over the ranks of a network.
// SPDX-License-Identifier: Apache-2.0
#include "train/tensor/part_gradients.h"

#include <torch/torch.h>

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "train/tensor_floats.h"

namespace thinwire {
namespace {

// The square of the norm.
double square_of(const std::vector<torch::Tensor>& weights) {
  double square = 0;
  for (const torch::Tensor& weight : weights)
    if (weight.grad().defined()) square += std::pow(weight.grad().norm(2.0).item<double>(), 2);
  return square;
}

}  // namespace

uint64_t sum_partial_gradients(const RankParts& parts, Group& ranks) {
  const torch::NoGradGuard no_grad;
  uint64_t sent = 0;
  for (torch::Tensor& weight : parts.summed_weights()) {
    torch::Tensor& gradient = weight.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : torch::zeros_like(weight);
    const auto mine = std::as_bytes(std::span<const float>(floats_of(gradient)));
    torch::Tensor all = torch::empty({ranks.size(), gradient.numel()});
    ranks.all_gather(mine, std::as_writable_bytes(floats_of(all)));
    torch::Tensor sum = all[0].clone();
    for (int rank = 1; rank < ranks.size(); ++rank) sum.add_(all[rank]);
    gradient.copy_(sum.view(gradient.sizes()));
    sent += mine.size() * static_cast<uint64_t>(ranks.size() - 1);
  }
  return sent;
}

void clip_gradients(const RankParts& parts, Group& ranks, double limit) {
  const torch::NoGradGuard no_grad;
  const double own = square_of(parts.own_weights());
  std::vector<double> squares(static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(squares)));
  const double square =
      std::accumulate(squares.begin(), squares.end(), square_of(parts.common_weights()));
  // As torch's clip_grad_norm_.
  const double share = limit / (std::sqrt(square) + 1e-6);
  if (!(share < 1)) return;
  for (const torch::Tensor& weight : parts.module().parameters())
    if (weight.grad().defined()) weight.mutable_grad().mul_(share);
}

}  // namespace thinwire
