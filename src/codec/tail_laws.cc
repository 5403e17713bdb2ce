// Computes the thresholds of fitted tails, in double.
// SPDX-License-Identifier: Apache-2.0
#include "codec/tail_laws.h"

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>

namespace thinwire {
namespace {

// Extreme arguments give infinity or zero, not an exception.
using Quiet = boost::math::policies::policy<
    boost::math::policies::domain_error<boost::math::policies::ignore_error>,
    boost::math::policies::overflow_error<boost::math::policies::ignore_error>,
    boost::math::policies::evaluation_error<boost::math::policies::ignore_error>>;

}  // namespace

double exponential_threshold(double mean, double ratio) noexcept { return -mean * std::log(ratio); }

double pareto_threshold(double mean, double variance, double ratio) noexcept {
  const double q = mean * mean / variance;
  const double xi = (1 - q) / 2;
  const double scale = mean * (q + 1) / 2;
  // (ratio^-xi - 1) / xi = -ln(ratio) expm1(y) / y with y = -xi ln(ratio).
  const double tail = -std::log(ratio);
  const double y = xi * tail;
  return scale * tail * (y == 0 ? 1 : std::expm1(y) / y);
}

GammaLaw fit_gamma(double mean, double log_gap) noexcept {
  const double s = std::max(log_gap, 1e-9);
  const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  return {.shape = shape, .scale = mean / shape};
}

double gamma_threshold(const GammaLaw& law, double ratio) {
  if (ratio >= 1) return 0;
  return law.scale * boost::math::gamma_q_inv(law.shape, ratio, Quiet());
}

double gamma_threshold_closed(const GammaLaw& law, double ratio) noexcept {
  int sign = 0;  // std::lgamma writes a global
  const double log_gamma = ::lgamma_r(law.shape, &sign);
  return std::max(0.0, -law.scale * (std::log(ratio) + log_gamma));
}

}  // namespace thinwire
