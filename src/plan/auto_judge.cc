// AutoJudge: two odd windows in a row count, because one may be chance, unless it is very odd.
// SPDX-License-Identifier: Apache-2.0
#include "plan/auto_judge.h"

#include <algorithm>
#include <cmath>

namespace thinwire {
namespace {

constexpr double kOdd = 0.15;
constexpr double kVeryOdd = 2;  // times as long, or as short
constexpr int kOddInARow = 2;
// Then a probe of 50 ms is due even if steps are as they were: with few bytes, they do not tell of
// a link that got faster.
constexpr double kSecondsWithoutProbe = 5;
constexpr double kShareOfProbes = 0.01, kShareAfterOdd = 0.1;  // of the time since the last one

constexpr double kLongestProbe = 0.5;  // seconds, unless it needs more

bool differ(double a, double b) { return std::abs(a - b) > kOdd * std::min(a, b); }
bool are_far_apart(double a, double b) { return std::max(a, b) > kVeryOdd * std::min(a, b); }

}  // namespace

AutoJudge::Wish AutoJudge::look(double step, double compute) {
  if (!known_) {
    known_ = true;
    step_ = step;
    compute_ = compute;
    odd_ = 0;
    return Wish::kPlan;
  }
  odd_ = differ(step, step_) || differ(compute, compute_) ? odd_ + 1 : 0;
  const bool other = odd_ >= kOddInARow || are_far_apart(step, step_);
  if (!other && since_probe_ < kSecondsWithoutProbe) return Wish::kNothing;
  share_ = other ? kShareAfterOdd : kShareOfProbes;
  if (probe_seconds() < probe_needs_) return Wish::kNothing;  // yet: odd windows stay odd
  odd_ = 0;
  step_ = step;
  compute_ = compute;
  return Wish::kProbe;
}

double AutoJudge::probe_seconds() const {
  return std::min(share_ * since_probe_, std::max(kLongestProbe, probe_needs_));
}

double needed_gain(bool from_dense, bool to_dense, bool tried) noexcept {
  return to_dense ? 0.98 : tried && !from_dense ? 1.02 : 1.05;
}

}  // namespace thinwire
