// AdaComp's selection by width of code; callers use select_bins.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernel/bin_codes.h"

namespace thinwire::kernel {

// A sum over bins in the order of docs/determinism.md: in lanes, folded after each chunk.
class BinSum {
 public:
  void add(float max) noexcept {
    lanes_[bins_ % kLanes] += max;
    if (++bins_ % kChunk == 0) fold();
  }

  double sum() noexcept {
    fold();
    return sum_;
  }

 private:
  static constexpr size_t kLanes = 16, kChunk = 8192;

  void fold() noexcept {
    for (size_t half = kLanes / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) lanes_[i] += lanes_[i + half];
    sum_ += lanes_[0];
    lanes_ = {};
  }

  std::array<double, kLanes> lanes_ = {};
  size_t bins_ = 0;
  double sum_ = 0;
};

// What select_bins promises, for bins of up to kMaxByteBin and of up to kMaxBin values.
BinSelection select_short_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                               size_t bin, std::span<std::byte> codes) noexcept;
BinSelection select_long_bins(std::span<const float> g, std::span<const float> fresh, float factor,
                              size_t bin, std::span<std::byte> codes) noexcept;

}  // namespace thinwire::kernel
