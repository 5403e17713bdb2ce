// The laws that SIDCo fits to magnitudes, and the threshold of a tail under each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

// All take the share of the magnitudes that should lie above, 0 < ratio <= 1, and return a
// threshold >= 0. Natural logarithms; `variance` is the unbiased estimate.

// Exponential: -mean ln(ratio).
double exponential_threshold(double mean, double ratio) noexcept;

// Generalised Pareto by moments: q = mean^2 / variance, shape xi = (1 - q) / 2,
// scale b = mean (q + 1) / 2, threshold b (ratio^-xi - 1) / xi. At q = 1 that is the exponential
// one, and near it nothing cancels. REQUIRES: variance > 0.
double pareto_threshold(double mean, double variance, double ratio) noexcept;

struct GammaLaw {
  double shape = 1;
  double scale = 1;
};

// From s = ln(mean) - mean of ln(magnitude): shape = (3 - s + sqrt((s - 3)^2 + 24 s)) / (12 s),
// scale = mean / shape. s is 0 for constant magnitudes; less than 1e-9 counts as that.
GammaLaw fit_gamma(double mean, double log_gap) noexcept;

// scale times the inverse of the regularised upper incomplete gamma function at `ratio`.
double gamma_threshold(const GammaLaw& law, double ratio);

// -scale (ln(ratio) + ln Gamma(shape)), or 0 where that is negative: exact for shape 1 only, keeps
// too few below.
double gamma_threshold_closed(const GammaLaw& law, double ratio) noexcept;

}  // namespace thinwire
