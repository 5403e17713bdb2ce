// StepForecast: scales the usual shares of streams by what the step's first streams have.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/step_forecast.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace thinwire {
namespace {

// The weight of a usual step beside the streams seen, as a share of a step. So the first small
// streams, whose samples hold few values, hardly move the forecast.
constexpr double kPrior = 0.1;
// Smaller shares become 0, long before they are denormal.
constexpr double kNothing = 0x1p-40;

}  // namespace

void StepForecast::see(size_t stream, double above) {
  if (stream >= step_.size()) {
    step_.resize(stream + 1);
    shares_.reserve(step_.capacity());  // average cannot fail
  }
  step_[stream] = above;
  above_ += above;
  if (stream < shares_.size()) share_ += shares_[stream];
}

std::optional<double> StepForecast::to_come(double usual) const noexcept {
  assert(usual > 0);
  if (total_ == 0) return std::nullopt;
  const double share = std::min(1.0, share_ / total_);
  const double ratio = (above_ / usual + kPrior) / (share + kPrior);
  return ratio * (1 - share) * usual;
}

void StepForecast::average(double weight) noexcept {
  if (above_ > 0) {
    if (total_ == 0) weight = 1;
    shares_.resize(step_.size());
    for (size_t i = 0; i < shares_.size(); ++i) {
      const double next = shares_[i] + weight * (step_[i] / above_ - shares_[i]);
      shares_[i] = next < kNothing ? 0 : next;
    }
    total_ = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  }
  forget();
}

void StepForecast::forget() noexcept {
  step_.resize(shares_.size());  // not more than it was
  std::fill(step_.begin(), step_.end(), 0.0);
  above_ = share_ = 0;
}

void StepForecast::set_shares(std::span<const double> shares) {
  step_.resize(std::max(step_.size(), shares.size()));
  shares_.assign(shares.begin(), shares.end());
  total_ = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  forget();
}

}  // namespace thinwire
