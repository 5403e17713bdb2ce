// ThresholdProbe: counts values above several thresholds, with few passes over the vector.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "codec/exceedance_list.h"

namespace thinwire {

// For methods that try thresholds until the count is right. A read of memory lists what exceeds
// one; that answers for all higher ones, and for lower ones when the list is too long already. The
// next vector's first list reaches down to the lowest threshold that needed one, so that in the
// long run one read is enough. Answers never depend on that.
class ThresholdProbe {
 public:
  // A new vector, of which the caller needs no exact counts above `enough`.
  void begin(std::span<const float> values, size_t enough);

  // The same; returns kernel::value_sum(values) from the first read.
  double begin_with_sum(std::span<const float> values, size_t enough);

  // How many values have |x| > threshold; any number above `enough` if these are more than that.
  size_t count(float threshold);

  // list().select(values, threshold, most, rest), without another read if count knew the answer.
  void take(float threshold, size_t most, std::span<float> rest);

  ExceedanceList& list() noexcept { return list_; }

 private:
  bool read(float floor);

  std::span<const float> values_;
  size_t enough_ = 0;
  size_t limit_ = 0;     // entries that a list may have
  bool listed_ = false;  // the list holds what exceeds floor_
  float floor_ = 0;
  float lowest_ = 0;  // threshold that a list had to reach
  float hint_ = 0;    // floor of the next vector's first list; 0: none
  ExceedanceList list_;
};

}  // namespace thinwire
