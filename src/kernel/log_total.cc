// Adds the logarithms of lanes in order; exponents count as multiples of ln 2.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/log_total.h"

#include <cassert>
#include <cmath>
#include <numbers>

namespace thinwire::kernel {

void LogTotal::add(const LogChunk& chunk) noexcept {
  exponents_ += chunk.exponents;
  for (const double product : chunk.products) mantissas_ += std::log(product);
}

double LogTotal::sum(size_t count, std::span<const float> last, double guard,
                     double unit) const noexcept {
  assert(last.size() < kLogLanes);
  constexpr uint64_t kBias = 1023;
  const auto twos = static_cast<int64_t>(exponents_ - count * kBias);
  double sum = mantissas_ + static_cast<double>(twos) * std::numbers::ln2;
  for (const float value : last) sum += std::log((std::abs(value) + guard) * (1 / unit));
  return sum;
}

}  // namespace thinwire::kernel
