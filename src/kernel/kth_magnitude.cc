// The k-th magnitude by radix selection: magnitudes order like their bit patterns, so three
// histograms of 11, 10 and 10 bits fix all 31 bits. About two nanoseconds per value and pass.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/kth_magnitude.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstdint>

namespace thinwire::kernel {
namespace {

// Neighbours count in different tables: adding twice to one counter in a row waits for memory.
constexpr size_t kTables = 2;
using Histogram = std::array<std::array<uint32_t, kTables>, 2048>;

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

// Counts by the `kBits` bits above `kShift`, of those values that have `prefix` above these.
template <int kShift, int kBits>
void count(std::span<const float> values, uint32_t prefix, Histogram& histogram) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  histogram = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = magnitude_bits(values[i]);
    if (kShift + kBits < 31 && bits >> (kShift + kBits) != prefix) continue;
    ++histogram[bits >> kShift & kMask][i % kTables];
  }
}

// The bin, from the largest down, that holds the k-th; `above` grows by what lies in larger ones.
uint32_t find_bin(const Histogram& histogram, uint32_t bins, size_t k, size_t& above) {
  for (uint32_t bin = bins; bin-- > 0;) {
    const size_t here = size_t{histogram[bin][0]} + histogram[bin][1];
    if (above + here >= k) return bin;
    above += here;
  }
  return 0;
}

}  // namespace

KthMagnitude kth_magnitude(std::span<const float> values, size_t k) noexcept {
  assert(1 <= k && k <= values.size());
  Histogram histogram;
  size_t above = 0;
  count<20, 11>(values, 0, histogram);
  uint32_t bits = find_bin(histogram, 2048, k, above);
  count<10, 10>(values, bits, histogram);
  bits = bits << 10 | find_bin(histogram, 1024, k, above);
  count<0, 10>(values, bits, histogram);
  bits = bits << 10 | find_bin(histogram, 1024, k, above);
  return {.magnitude = std::bit_cast<float>(bits), .above = above};
}

}  // namespace thinwire::kernel
