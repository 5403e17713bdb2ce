// Data, model and hybrid parallelism of single layers: bytes, crossover, best number of groups.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire {

// A convolution, or a fully connected layer, whose kernel and areas are 1.
struct LayerShape {
  double inputs = 0;   // feature maps: ifm
  double outputs = 0;  // ofm
  double kernel = 1;   // weights per pair of maps: kw x kh
  double in_area = 1;  // values per map
  double out_area = 1;

  double weights() const noexcept { return inputs * outputs * kernel; }
};

// Operations of forward pass, backward pass and weight gradient for `samples` samples: 3 x 2 per
// weight and place [Das et al., 2016].
double layer_operations(const LayerShape& layer, double samples) noexcept;

// N nodes in G groups share a minibatch. The N/G nodes of a group divide the layer's outputs among
// them, so that each needs all inputs of its group's samples, and their gradients; groups add the
// gradients of weights. A node sends and receives, in float32,
//
//   8 ifm in_area minibatch / G
//     unless G = N: data parallelism, no part of the layer is elsewhere
//   + 4 weights (2 - overlap) G / N  unless G = 1: model parallelism, nobody else has these weights
//
// bytes per step. `overlap` is the share of one way of the gradients that other work hides, 0 to 1.
double layer_bytes(const LayerShape& layer, double minibatch, size_t nodes, size_t groups,
                   double overlap = 0) noexcept;

// Whether model parallelism sends less than data parallelism on many nodes: for a fully connected
// layer without overlap, whether it has more outputs than the minibatch has samples.
bool prefers_model(const LayerShape& layer, double minibatch, double overlap = 0) noexcept;

// Where the derivative of layer_bytes by G is 0: sqrt(N minibatch / ofm) for a fully connected
// layer without overlap. It may lie outside of 1 to N.
double stationary_groups(const LayerShape& layer, double minibatch, size_t nodes,
                         double overlap = 0) noexcept;

// The number of groups, a divisor of `nodes`, with the fewest bytes.
size_t best_groups(const LayerShape& layer, double minibatch, size_t nodes,
                   double overlap = 0) noexcept;

// How much faster `nodes` nodes take a step than one. Bytes of layers with a kernel are hidden
// behind the work of other layers; those of the others are not, and each layer has its best number
// of groups. `operations_per_byte`: operations that a node could do while it sends a byte.
double predicted_speed_up(std::span<const LayerShape> layers, double minibatch, size_t nodes,
                          double operations_per_byte) noexcept;

}  // namespace thinwire
