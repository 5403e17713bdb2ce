// MagnitudeSketch: bins are the upper bits of a float, and their ends are floats with zeros below.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/magnitude_sketch.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

namespace thinwire {
namespace {

constexpr uint32_t kShift = 19;  // leaves 8 bits of exponent and 4 of the mantissa
// Averages below this become 0, long before they are denormal.
constexpr float kNothing = 0x1p-9f;

// The bin after that of the largest floats begins at infinity.
float lower_end(size_t bin) noexcept {
  return std::min(std::bit_cast<float>(static_cast<uint32_t>(bin) << kShift),
                  std::numeric_limits<float>::max());
}

}  // namespace

void MagnitudeSketch::count(std::span<const float> sample, uint64_t each) noexcept {
  for (const float value : sample)
    step_[(std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu) >> kShift] += each;
}

void MagnitudeSketch::average(float share) noexcept {
  end_ = 0;
  for (size_t i = 0; i < kBins; ++i) {
    const auto now = static_cast<float>(step_[i]);
    const float next = empty_ ? now : average_[i] + share * (now - average_[i]);
    average_[i] = next < kNothing ? 0 : next;
    if (average_[i] > 0) end_ = i + 1;
  }
  empty_ = false;
  forget();
}

void MagnitudeSketch::forget() noexcept { std::fill(step_.begin(), step_.end(), 0); }

// Bin 0 holds zeros.
MagnitudeSketch::Start MagnitudeSketch::start_for(double least) const noexcept {
  assert(least > 0);
  Start start{.end = end_};
  while (start.end > 1 && start.above + average_[start.end - 1] < least)
    start.above += average_[--start.end];
  return start;
}

// `above` stays less than the target, so the bin found is not empty.
std::optional<float> MagnitudeSketch::exceeded_by(double target,
                                                  const Start& start) const noexcept {
  double above = start.above;
  for (size_t bin = start.end; bin-- > 1;) {
    const double here = average_[bin];
    if (above + here < target) {
      above += here;
      continue;
    }
    const double low = lower_end(bin), high = lower_end(bin + 1);
    return static_cast<float>(low + (high - low) * (above + here - target) / here);
  }
  return std::nullopt;
}

void MagnitudeSketch::set_bins(std::span<const float> bins) {
  assert(bins.size() == kBins);
  average_.assign(bins.begin(), bins.end());
  end_ = kBins;
  while (end_ > 0 && average_[end_ - 1] == 0) --end_;
  empty_ = end_ == 0;
  forget();
}

}  // namespace thinwire
