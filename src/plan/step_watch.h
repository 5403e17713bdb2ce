// StepWatch: when gradients come and steps end on this rank, as medians over some steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace thinwire {

// Seconds from the end of the step before.
struct WatchedStep {
  double step = 0;
  std::vector<double> ready;  // by tensor
};

class StepWatch {
 public:
  explicit StepWatch(size_t tensors) : now_(tensors, kAbsent) {}

  void started(size_t tensor, double clock);
  void ended(double clock);

  // From here on, without the next `unsteady` steps, in which memories are allocated and codecs
  // settle.
  void restart(size_t steps, size_t unsteady);

  size_t size() const noexcept { return all_.size(); }  // steps
  bool is_full() const noexcept { return all_.size() >= wanted_; }

  // Medians; a tensor that the caller did not start has the time of the last one.
  WatchedStep medians() const;

 private:
  static constexpr double kAbsent = -1;

  std::vector<double> now_;  // of the step under way, by tensor
  double before_ = kAbsent;  // the clock at the end of the step before
  size_t wanted_ = 1;
  size_t unsteady_ = 0;
  std::vector<WatchedStep> all_;
};

}  // namespace thinwire
