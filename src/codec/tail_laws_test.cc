// Tests of tail laws: survival(threshold) is the ratio from which the threshold was made.
// SPDX-License-Identifier: Apache-2.0
#include "codec/tail_laws.h"

#include <gtest/gtest.h>

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>

namespace thinwire {
namespace {

const double kRatios[] = {0.9, 0.25, 0.1, 0.01, 0.001, 1e-6};

TEST(TailLaws, ExponentialInvertsItsSurvival) {
  for (const double mean : {1e-30, 0.3, 1e20})
    for (const double ratio : kRatios)
      EXPECT_NEAR(std::exp(-exponential_threshold(mean, ratio) / mean), ratio, 1e-14);
  EXPECT_EQ(exponential_threshold(3, 1), 0);
}

// Mean and variance of a generalised Pareto law: b / (1 - xi) and b^2 / ((1 - xi)^2 (1 - 2 xi)).
TEST(TailLaws, ParetoRecoversTheLawFromItsMoments) {
  const double b = 0.7;
  for (const double xi : {-1.0, -0.4, -1e-7, 0.0, 1e-12, 1e-5, 0.2, 0.45}) {
    const double mean = b / (1 - xi);
    const double variance = mean * mean / (1 - 2 * xi);
    for (const double ratio : kRatios) {
      const double threshold = pareto_threshold(mean, variance, ratio);
      const double survival = std::abs(xi) < 1e-9 ? std::exp(-threshold / b)
                                                  : std::pow(1 + xi * threshold / b, -1 / xi);
      EXPECT_NEAR(survival / ratio, 1, 1e-7) << xi << " " << ratio;
    }
  }
}

TEST(TailLaws, ParetoAtQOneIsTheExponential) {
  for (const double ratio : kRatios)
    EXPECT_DOUBLE_EQ(pareto_threshold(0.3, 0.09, ratio), exponential_threshold(0.3, ratio));
}

// The textbook form loses half the digits here; against its series in xi to second order.
TEST(TailLaws, ParetoNearShapeZeroDoesNotCancel) {
  for (const double ratio : kRatios) {
    const double tail = -std::log(ratio);
    for (const double xi : {1e-4, 1e-6, 1e-9, -1e-6}) {
      const double q = 1 - 2 * xi;
      const double y = xi * tail;
      const double want = (q + 1) / 2 * tail * (1 + y / 2 + y * y / 6 + y * y * y / 24);
      EXPECT_NEAR(pareto_threshold(1, 1 / q, ratio) / want, 1, 1e-12) << xi << " " << ratio;
    }
  }
}

TEST(TailLaws, ParetoStaysFiniteAtItsEnds) {
  for (const double variance : {1e-300, 1e-12, 1e12, 1e300})
    for (const double ratio : kRatios) {
      const double threshold = pareto_threshold(1, variance, ratio);
      EXPECT_TRUE(std::isfinite(threshold) && threshold >= 0) << variance << " " << ratio;
    }
}

TEST(TailLaws, GammaFitFindsTheShape) {
  // s = ln(shape) - digamma(shape); the estimate is within 1.5 % of the maximum of the likelihood.
  const struct {
    double shape, digamma;
  } known[] = {{0.5, -1.9635100260214235},
               {1, -0.5772156649015329},
               {2, 0.4227843350984671},
               {10, 2.2517525890667211}};
  for (const auto& [shape, digamma] : known) {
    const GammaLaw law = fit_gamma(3, std::log(shape) - digamma);
    EXPECT_NEAR(law.shape / shape, 1, 0.015) << shape;
    EXPECT_DOUBLE_EQ(law.shape * law.scale, 3);
  }
}

TEST(TailLaws, GammaInvertsItsSurvival) {
  for (const double shape : {0.02, 0.2, 0.5, 1.0, 3.0, 100.0})
    for (const double ratio : kRatios) {
      const double threshold = gamma_threshold({.shape = shape, .scale = 2}, ratio);
      if (threshold < 1e-290) continue;  // a survival of less than the ratio at the smallest double
      EXPECT_NEAR(boost::math::gamma_q(shape, threshold / 2) / ratio, 1, 1e-9) << shape << ratio;
    }
  EXPECT_EQ(gamma_threshold({.shape = 2, .scale = 2}, 1), 0);
}

TEST(TailLaws, GammaClosedFormIsExactAtShapeOne) {
  for (const double ratio : kRatios) {
    const GammaLaw law{.shape = 1, .scale = 0.4};
    EXPECT_NEAR(gamma_threshold_closed(law, ratio) / gamma_threshold(law, ratio), 1, 1e-12);
    EXPECT_NEAR(gamma_threshold(law, ratio), exponential_threshold(0.4, ratio), 1e-12);
  }
}

TEST(TailLaws, GammaClosedFormUnderSelectsBelowShapeOne) {
  // Kept over asked at ratios 0.25, 0.1, 0.01, 0.001.
  const struct {
    double shape, kept[4];
  } table[] = {{0.5, {0.81, 0.63, 0.45, 0.37}}, {0.8, {0.87, 0.80, 0.71, 0.67}}};
  const double ratios[] = {0.25, 0.1, 0.01, 0.001};
  for (const auto& row : table)
    for (int i = 0; i < 4; ++i) {
      const double threshold = gamma_threshold_closed({.shape = row.shape, .scale = 1}, ratios[i]);
      EXPECT_NEAR(boost::math::gamma_q(row.shape, threshold) / ratios[i], row.kept[i], 0.01)
          << row.shape << " " << ratios[i];
    }
}

TEST(TailLaws, GammaClosedFormIsClampedAtZero) {
  EXPECT_EQ(gamma_threshold_closed({.shape = 0.2, .scale = 1}, 0.25), 0);
}

TEST(TailLaws, GammaOfNearlyConstantMagnitudesIsFinite) {
  for (const double gap : {0.0, -1e-15, 1e-12, 1e-9, 40.0, 700.0}) {
    const GammaLaw law = fit_gamma(1, gap);
    for (const double ratio : kRatios) {
      for (const double threshold :
           {gamma_threshold(law, ratio), gamma_threshold_closed(law, ratio)})
        EXPECT_TRUE(std::isfinite(threshold) && threshold >= 0) << gap << " " << ratio;
    }
  }
}

}  // namespace
}  // namespace thinwire
