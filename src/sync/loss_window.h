// LossWindow: the mean of a worker's last losses, by which leaders are chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace thinwire {

// Over memory that somebody else saves: `losses` is a ring of as many as the window has, `seen`
// counts all losses so far in its one number.
class LossWindow {
 public:
  LossWindow(std::vector<double>& losses, std::vector<double>& seen)
      : losses_(losses), seen_(seen.front()) {}

  void add(double loss) {
    losses_[static_cast<size_t>(seen_) % losses_.size()] = loss;
    seen_ += 1;
  }

  // Of those seen, while the window is not full: the first steps are judged by what they had. +Inf
  // with a loss in the window that is not finite, or none: NaN must not win a comparison.
  double mean() const {
    const size_t held = std::min(losses_.size(), static_cast<size_t>(seen_));
    double sum = 0;
    for (size_t i = 0; i < held; ++i) sum += losses_[i];
    const double mean = sum / static_cast<double>(held);
    return std::isfinite(mean) ? mean : std::numeric_limits<double>::infinity();
  }

 private:
  std::vector<double>& losses_;
  double& seen_;
};

// Index of the smallest, the first of equal ones; -1 when none is finite.
inline int find_leader(std::span<const double> losses) noexcept {
  int best = -1;
  for (size_t i = 0; i < losses.size(); ++i)
    if (std::isfinite(losses[i]) && (best < 0 || losses[i] < losses[static_cast<size_t>(best)]))
      best = static_cast<int>(i);
  return best;
}

}  // namespace thinwire
