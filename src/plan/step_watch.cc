// StepWatch: collects the times of steps.
// SPDX-License-Identifier: Apache-2.0
#include "plan/step_watch.h"

#include <algorithm>

namespace thinwire {
namespace {

double middle_of(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

void StepWatch::started(size_t tensor, double clock) {
  if (before_ != kAbsent) now_[tensor] = clock - before_;
}

void StepWatch::ended(double clock) {
  if (before_ != kAbsent) {
    const double last = now_.empty() ? 0 : *std::max_element(now_.begin(), now_.end());
    for (double& seconds : now_) seconds = seconds == kAbsent ? std::max(0.0, last) : seconds;
    if (unsteady_ == 0) all_.push_back({.step = clock - before_, .ready = now_});
    if (unsteady_ > 0) --unsteady_;
  }
  before_ = clock;
  std::fill(now_.begin(), now_.end(), kAbsent);
}

void StepWatch::restart(size_t steps, size_t unsteady) {
  wanted_ = steps;
  unsteady_ = unsteady;
  all_.clear();
}

WatchedStep StepWatch::medians() const {
  std::vector<double> of_steps;
  for (const WatchedStep& one : all_) of_steps.push_back(one.step);
  WatchedStep result{.step = middle_of(of_steps), .ready = {}};
  for (size_t tensor = 0; tensor < now_.size(); ++tensor) {
    std::vector<double> times;
    for (const WatchedStep& one : all_) times.push_back(one.ready[tensor]);
    result.ready.push_back(middle_of(std::move(times)));
  }
  return result;
}

}  // namespace thinwire
