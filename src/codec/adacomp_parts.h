// AdaComp's bins of a stream, and its form for values in a device's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "codec/device_codec.h"
#include "kernel/bin_codes.h"
#include "thinwire/codec.h"

namespace thinwire {

// What encoder and decoder know of a tensor.
struct BinPart {
  size_t count;
  size_t bin;

  size_t bins() const noexcept { return (count + bin - 1) / bin; }
  size_t max_code_size() const noexcept { return count * kernel::bin_code_size(bin); }
};

using BinParts = std::vector<BinPart>;

// Bins run over each tensor by itself.
inline BinParts bin_parts(const StreamSpec& stream, size_t convolution, size_t linear) {
  BinParts parts;
  for (const TensorSpec& tensor : stream.tensors)
    parts.push_back({.count = tensor.count(),
                     .bin = tensor.kind == TensorKind::kConvolution ? convolution : linear});
  return parts;
}

// The mean of the largest magnitudes of all bins.
inline float bin_scale(double max_sum, const BinPart& part) noexcept {
  return static_cast<float>(max_sum / static_cast<double>(part.bins()));
}

// `codec` is AdaComp with these parts and this factor, s - 1.
std::unique_ptr<Codec> make_adacomp_device_codec(
    std::unique_ptr<Codec> codec, SharedWork work, float factor,
    std::function<BinParts(const StreamSpec&)> parts_of);

}  // namespace thinwire
