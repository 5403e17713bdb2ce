// The cost model of Das et al., "Distributed deep learning using synchronous stochastic gradient
// descent", 2016.
// SPDX-License-Identifier: Apache-2.0
#include "plan/layer_parallel.h"

#include <cmath>

namespace thinwire {
namespace {

constexpr double kFloat = 4;

double activation_bytes(const LayerShape& layer, double minibatch) {
  return 2 * kFloat * layer.inputs * layer.in_area * minibatch;
}

double gradient_bytes(const LayerShape& layer, double overlap) {
  return kFloat * layer.weights() * (2 - overlap);
}

}  // namespace

double layer_operations(const LayerShape& layer, double samples) noexcept {
  return 3 * 2 * samples * layer.weights() * layer.out_area;
}

double layer_bytes(const LayerShape& layer, double minibatch, size_t nodes, size_t groups,
                   double overlap) noexcept {
  const auto n = static_cast<double>(nodes), g = static_cast<double>(groups);
  double bytes = 0;
  if (groups < nodes) bytes += activation_bytes(layer, minibatch) / g;
  if (groups > 1) bytes += gradient_bytes(layer, overlap) * g / n;
  return bytes;
}

bool prefers_model(const LayerShape& layer, double minibatch, double overlap) noexcept {
  return gradient_bytes(layer, overlap) > activation_bytes(layer, minibatch);
}

double stationary_groups(const LayerShape& layer, double minibatch, size_t nodes,
                         double overlap) noexcept {
  return std::sqrt(static_cast<double>(nodes) * activation_bytes(layer, minibatch) /
                   gradient_bytes(layer, overlap));
}

size_t best_groups(const LayerShape& layer, double minibatch, size_t nodes,
                   double overlap) noexcept {
  size_t best = nodes;
  for (size_t groups = 1; groups < nodes; ++groups)
    if (nodes % groups == 0 && layer_bytes(layer, minibatch, nodes, groups, overlap) <
                                   layer_bytes(layer, minibatch, nodes, best, overlap))
      best = groups;
  return best;
}

double predicted_speed_up(std::span<const LayerShape> layers, double minibatch, size_t nodes,
                          double operations_per_byte) noexcept {
  double operations = 0, bytes = 0;
  for (const LayerShape& layer : layers) {
    operations += layer_operations(layer, minibatch);
    if (layer.kernel == 1)
      bytes += layer_bytes(layer, minibatch, nodes, best_groups(layer, minibatch, nodes));
  }
  return operations / (operations / static_cast<double>(nodes) + operations_per_byte * bytes);
}

}  // namespace thinwire
