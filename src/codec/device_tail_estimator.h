// SIDCo's threshold for a vector in a device's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codec/tail_estimator.h"
#include "device/device_work.h"
#include "kernel/log_total.h"

namespace thinwire {

// Passes read the vector where it lies, and lists of what exceeds a threshold stay there: a stage
// brings a few numbers to the processor. There are three lists. They hold a few percent of the
// values as a rule, and all at worst.
class DeviceTailEstimator final : public TailEstimator {
 public:
  DeviceTailEstimator(const TailMethod& method, SharedWork work)
      : TailEstimator(method), work_(std::move(work)) {}

  bool begin(std::span<const float> values, const Moments& moments);  // hides the base's

 private:
  // What exceeds a threshold, in order.
  struct List {
    std::unique_ptr<device::DeviceFloats> memory;
    std::optional<float> threshold;  // none: no list
    size_t size = 0;

    std::span<const float> values() const noexcept { return memory->values().first(size); }
  };

  kernel::TailMoments tail(float threshold) override;
  kernel::TailMoments tail_of_list(float threshold) override;
  // Makes the list that later passes read. False: the processor has none.
  bool collect(float threshold, ExceedanceList& list) override;
  bool collect_with_tail(float threshold, ExceedanceList& list, float tail_threshold,
                         std::optional<kernel::TailMoments>& tail) override;
  size_t count_above(float threshold) override;
  double log_sum(double guard, double unit) override;

  kernel::TailMoments tail_of(std::span<const float> list, float threshold);
  const List* shortest_list(float threshold) const noexcept;
  const List& list_above(float threshold);

  SharedWork work_;
  std::array<List, 3> lists_;
  std::vector<kernel::LogChunk> chunks_;
};

}  // namespace thinwire
