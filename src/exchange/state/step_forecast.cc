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

}  // namespace

void StepForecast::see(size_t stream, double above) {
  if (stream >= step_.size()) step_.resize(stream + 1);
  step_[stream] = above;
  above_ += above;
  if (stream >= shares_.size() || shares_[stream] == 0) return;
  known_above_ += above;
  known_share_ += shares_[stream];
}

std::optional<double> StepForecast::to_come(double usual) const noexcept {
  assert(usual > 0);
  if (total_ == 0) return std::nullopt;
  const double share = std::min(1.0, known_share_ / total_);
  const double ratio = (known_above_ / usual + kPrior) / (share + kPrior);
  return ratio * (1 - share) * usual;
}

void StepForecast::average(double weight) noexcept {
  if (above_ > 0) {
    if (total_ == 0) weight = 1;
    shares_.resize(step_.size());
    for (size_t i = 0; i < shares_.size(); ++i)
      shares_[i] += weight * (step_[i] / above_ - shares_[i]);
    total_ = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  }
  forget();
}

void StepForecast::forget() noexcept {
  step_.assign(shares_.size(), 0.0);
  above_ = known_above_ = known_share_ = 0;
}

void StepForecast::set_shares(std::span<const double> shares) {
  shares_.assign(shares.begin(), shares.end());
  total_ = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  forget();
}

}  // namespace thinwire
