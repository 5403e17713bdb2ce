// ThresholdProbe: answers counts and selections from lists of values above thresholds.
// SPDX-License-Identifier: Apache-2.0
#include "codec/threshold_probe.h"

#include <algorithm>

#include "kernel/select.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr float kHint = 0.9f;  // of a threshold: the next vector's may be a little lower
constexpr float kNone = std::numeric_limits<float>::infinity();

}  // namespace

void ThresholdProbe::begin(std::span<const float> values, size_t enough) {
  values_ = values;
  enough_ = enough;
  limit_ = std::max(enough, values.size() / 4);  // 2 bytes per value
  listed_ = false;
  lowest_ = kNone;
}

double ThresholdProbe::begin_with_sum(std::span<const float> values, size_t enough) {
  begin(values, enough);
  if (hint_ == 0) return kernel::value_sum(values);
  double sum;
  floor_ = hint_;
  listed_ = list_.collect(values, floor_, limit_, sum);
  if (!listed_) hint_ = 0;
  return sum;
}

bool ThresholdProbe::read(float floor) {
  floor_ = floor;
  listed_ = list_.collect(values_, floor, limit_);
  return listed_;
}

size_t ThresholdProbe::count(float threshold) {
  if (listed_ && threshold < floor_ && list_.size() > enough_) return list_.size();
  if (!listed_ || threshold < floor_) {
    const bool hinted = !listed_ && 0 < hint_ && hint_ < threshold && read(hint_);
    if (!hinted) hint_ = 0;  // of no use this time
    if (!hinted && !read(threshold)) return limit_ + 1;
  }
  const size_t above = kernel::count_above(list_.values(), threshold);
  if (above <= enough_) lowest_ = std::min(lowest_, threshold);
  return above;
}

void ThresholdProbe::take(float threshold, size_t most, std::span<float> rest) {
  if (listed_ && floor_ <= threshold) {
    list_.compact(threshold);
    if (list_.size() > most) list_.keep_largest(most, {});
    list_.leave(values_, rest);
  } else {
    list_.select(values_, threshold, most, rest);
  }
  listed_ = false;
  hint_ = kHint * std::min(lowest_, threshold);
}

}  // namespace thinwire
