// Tests of TailEstimator against a naive one in double, and of how much it keeps of known laws.
// SPDX-License-Identifier: Apache-2.0
#include "codec/tail_estimator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "codec/stage_control.h"
#include "core/random.h"
#include "kernel/for_each_target.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

// Uniform in (0, 1).
double uniform(uint64_t seed, uint64_t i) {
  return (random_word({.seed = seed, .stream = 1}, i) + 0.5) * 0x1p-32;
}

// Laws of a gradient's values.
const std::map<std::string, std::function<double(uint64_t, uint64_t)>> kLaws = {
    {"normal", [](uint64_t s, uint64_t i) -> double { return random_normal({.seed = s}, i); }},
    {"laplace",
     [](uint64_t s, uint64_t i) {
       const double u = uniform(s, i) - 0.5;
       return std::copysign(std::log1p(-2 * std::abs(u)), u);
     }},
    {"t3",
     [](uint64_t s, uint64_t i) {
       double chi = 0;
       for (uint32_t k = 2; k < 5; ++k) {
         const double z = random_normal({.seed = s, .stream = k}, i);
         chi += z * z;
       }
       return random_normal({.seed = s}, i) / std::sqrt(chi / 3);
     }},
    {"weibull", [](uint64_t s, uint64_t i) { return std::pow(-std::log(uniform(s, i)), 1 / 0.4); }},
    {"normal x lognormal",
     [](uint64_t s, uint64_t i) {
       return random_normal({.seed = s}, i) * std::exp(random_normal({.seed = s, .stream = 2}, i));
     }},
    {"mostly zeros",
     [](uint64_t s, uint64_t i) {
       return uniform(s, i) < 0.9 ? 0.0 : random_normal({.seed = s}, i);
     }},
};

std::vector<float> draw(const std::string& law, size_t count, uint64_t seed = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(kLaws.at(law)(seed, i));
  return values;
}

struct Kept {
  float threshold;
  size_t count;
};

Kept estimate(const TailMethod& method, const std::vector<float>& values, int stages) {
  TailEstimator estimator(method);
  EXPECT_TRUE(estimator.begin(values, kernel::moments(values)));
  ExceedanceList list;
  const auto got = estimator.estimate(stages, list);
  const auto above = static_cast<size_t>(std::count_if(
      values.begin(), values.end(), [&](float v) { return std::abs(v) > got.threshold; }));
  if (got.listed) {
    EXPECT_EQ(list.size(), above);
    for (const float value : list.values()) EXPECT_GT(std::abs(value), got.threshold);
  }
  return {got.threshold, above};
}

// Kept over asked.
double ratio(const TailMethod& method, const std::vector<float>& values, int stages) {
  return static_cast<double>(estimate(method, values, stages).count) /
         (method.density * static_cast<double>(values.size()));
}

// --- The algorithm, naively: everything in double, two passes per variance, copies per stage. ---

double mean_of(const std::vector<double>& a) {
  double sum = 0;
  for (const double x : a) sum += x;
  return sum / static_cast<double>(a.size());
}

double variance_of(const std::vector<double>& a) {
  const double mean = mean_of(a);
  double sum = 0;
  for (const double x : a) sum += (x - mean) * (x - mean);
  return sum / (static_cast<double>(a.size()) - 1);
}

double naive_law(const TailMethod& method, const std::vector<double>& a, bool first, double share) {
  if (method.law == TailLaw::kExponential) return -mean_of(a) * std::log(share);
  if (method.law == TailLaw::kGammaPareto && first) {
    double square = 0, logs = 0;
    for (const double x : a) square += x * x;
    for (const double x : a) logs += std::log(x / std::sqrt(square) + 0x1p-52);
    const double s =
        std::log(mean_of(a) / std::sqrt(square)) - logs / static_cast<double>(a.size());
    const GammaLaw law = fit_gamma(mean_of(a), s);
    return method.closed_gamma ? gamma_threshold_closed(law, share) : gamma_threshold(law, share);
  }
  const double q = mean_of(a) * mean_of(a) / variance_of(a);
  const double xi = (1 - q) / 2, b = mean_of(a) * (q + 1) / 2;
  return b / xi * (std::pow(share, -xi) - 1);
}

double naive_threshold(const TailMethod& method, const std::vector<float>& values, int stages) {
  const bool one = stages == 1 || method.density >= method.first_ratio;
  const double first = one ? method.density : method.first_ratio;
  const double later = one ? 1 : std::pow(method.density / first, 1.0 / (stages - 1));
  std::vector<double> kept;
  for (const float value : values) kept.push_back(std::abs(static_cast<double>(value)));
  double eta = naive_law(method, kept, true, first);
  for (int stage = 2; stage <= stages && !one; ++stage) {
    std::erase_if(kept, [&](double a) { return !(a > eta); });
    if (kept.size() < TailEstimator::kFew) break;
    const double mn = *std::min_element(kept.begin(), kept.end());
    std::vector<double> excess;
    for (const double a : kept) excess.push_back(a - mn);
    if (variance_of(excess) == 0) break;
    eta = mn + naive_law(method, excess, false, later);
  }
  return eta;
}

const TailLaw kTailLaws[] = {TailLaw::kExponential, TailLaw::kPareto, TailLaw::kGammaPareto};

TEST(TailEstimator, AgreesWithTheNaiveAlgorithm) {
  for (const auto& [name, law] : kLaws) {
    const auto values = draw(name, 50021);
    for (const TailLaw tail_law : kTailLaws)
      for (const bool closed : {false, true})
        for (const double density : {0.1, 0.01, 0.001})
          for (int stages = 1; stages <= 8; ++stages) {
            const TailMethod method{.law = tail_law, .closed_gamma = closed, .density = density};
            const double want = naive_threshold(method, values, stages);
            // Excesses are rounded to float before they are summed: 6e-8 each, far less in a mean.
            EXPECT_NEAR(estimate(method, values, stages).threshold, want, 2e-7 * want)
                << name << " law " << static_cast<int>(tail_law) << " density " << density << " M "
                << stages;
          }
  }
}

// A first ratio this high leaves more above the second threshold than a list may hold.
TEST(TailEstimator, AgreesWhereTheTailIsTooLongToList) {
  const auto values = draw("laplace", 50021);
  for (const TailLaw tail_law : {TailLaw::kExponential, TailLaw::kPareto})
    for (const int stages : {3, 5}) {
      const TailMethod method{.law = tail_law, .density = 0.4, .first_ratio = 0.9};
      TailEstimator estimator(method);
      ASSERT_TRUE(estimator.begin(values, kernel::moments(values)));
      ExceedanceList list;
      const auto got = estimator.estimate(stages, list);
      EXPECT_FALSE(got.listed);
      const double want = naive_threshold(method, values, stages);
      EXPECT_NEAR(got.threshold, want, 2e-7 * want);
      const auto choice = estimator.nearest(stages, 20000, list);
      EXPECT_EQ(choice.estimate.threshold, estimator.estimate(choice.stages, list).threshold);
    }
}

TEST(TailEstimator, IsTheSameOnEveryTarget) {
  const auto values = draw("t3", 100003);
  for (const TailLaw tail_law : kTailLaws)
    for (int stages = 1; stages <= 6; ++stages) {
      const TailMethod method{.law = tail_law, .density = 0.001};
      const Kept want = estimate(method, values, stages);
      kernel::for_each_target([&](std::string_view target) {
        EXPECT_EQ(estimate(method, values, stages).threshold, want.threshold) << target;
      });
    }
}

TEST(TailEstimator, MovesWithTheExponent) {
  const auto values = draw("normal x lognormal", 30000);
  for (const int exponent : {-60, 1, 60}) {
    auto scaled = values;
    for (float& value : scaled) value = std::ldexp(value, exponent);
    for (const TailLaw tail_law : kTailLaws)
      for (int stages = 1; stages <= 6; ++stages) {
        const TailMethod method{.law = tail_law, .density = 0.001};
        const Kept a = estimate(method, values, stages), b = estimate(method, scaled, stages);
        EXPECT_EQ(b.threshold, std::ldexp(a.threshold, exponent));
        EXPECT_EQ(b.count, a.count);
      }
  }
}

TEST(TailEstimator, ExponentialKeepsTheTargetOfALaplaceGradient) {
  const auto values = draw("laplace", 200000);
  for (int stages = 1; stages <= 4; ++stages)
    EXPECT_NEAR(ratio({.density = 0.001}, values, stages), 1, 0.2) << stages;
}

TEST(TailEstimator, ParetoAgreesWithExponentialOnALaplaceGradient) {
  const auto values = draw("laplace", 200000);
  const float pareto = estimate({.law = TailLaw::kPareto, .density = 0.001}, values, 1).threshold;
  EXPECT_NEAR(pareto / estimate({.density = 0.001}, values, 1).threshold, 1, 0.03);
}

// Kept over asked at density 0.001, exponential law. Counts scatter by 4 % at 600,000 values.
TEST(TailEstimator, ExponentialKeepsAsKnown) {
  const std::map<std::string, std::vector<double>> table = {{"normal", {0.00, 0.09, 0.69, 1.07}},
                                                            {"t3", {4.7, 3.6, 1.1, 0.66}},
                                                            {"weibull", {30, 3.6, 1.05, 0.53}}};
  for (const auto& [name, row] : table) {
    const auto values = draw(name, 600000);
    for (int stages = 1; stages <= 4; ++stages) {
      const double want = row[stages - 1];
      EXPECT_NEAR(ratio({.density = 0.001}, values, stages), want, 0.15 * want + 0.02)
          << name << " M " << stages;
    }
  }
}

TEST(TailEstimator, ParetoOverSelectsWithOneStageAndHoldsWithTwoOrThree) {
  const std::map<std::string, double> one_stage = {{"normal", 6.8}, {"t3", 1.3}, {"weibull", 2.7}};
  for (const auto& [name, law] : kLaws) {
    if (name == "mostly zeros") continue;
    const auto values = draw(name, 600000);
    for (const double density : {0.1, 0.01, 0.001})
      for (const int stages : {2, 3}) {
        const double got = ratio({.law = TailLaw::kPareto, .density = density}, values, stages);
        EXPECT_GT(got, 0.55) << name << " M " << stages << " " << density;
        EXPECT_LT(got, 1.25) << name << " M " << stages << " " << density;
      }
    if (const auto want = one_stage.find(name); want != one_stage.end()) {
      EXPECT_NEAR(ratio({.law = TailLaw::kPareto, .density = 0.001}, values, 1), want->second,
                  0.2 * want->second)
          << name;
    }
  }
}

TEST(TailEstimator, NearestIsTheBestOfAllCounts) {
  for (const auto& [name, law] : kLaws) {
    const auto values = draw(name, 50000, 4);
    for (const TailLaw tail_law : kTailLaws)
      for (const double density : {0.3, 0.1, 0.01, 0.001}) {
        const TailMethod method{.law = tail_law, .density = density};
        const auto target = static_cast<double>(values.size()) * density;
        const int most = max_stages(density);
        int want = 1;
        double best = std::numeric_limits<double>::infinity();
        for (int stages = 1; stages <= most; ++stages) {
          const auto count = static_cast<double>(estimate(method, values, stages).count);
          const double distance = std::abs(count - target);
          if (count > 0 && distance < best) best = distance, want = stages;
        }
        kernel::for_each_target([&](std::string_view target_name) {
          TailEstimator estimator(method);
          ASSERT_TRUE(estimator.begin(values, kernel::moments(values)));
          ExceedanceList list;
          const auto got = estimator.nearest(most, static_cast<size_t>(target), list);
          EXPECT_EQ(got.stages, want)
              << name << " " << static_cast<int>(tail_law) << " " << density << target_name;
          const Kept kept = estimate(method, values, want);
          EXPECT_EQ(got.estimate.threshold, kept.threshold);
          if (got.estimate.listed) {
            EXPECT_EQ(list.size(), kept.count);
          }
        });
      }
  }
}

// What was learnt from one vector must not show in the next, however it differs.
TEST(TailEstimator, HintsChangeNothing) {
  for (const TailLaw tail_law : kTailLaws) {
    const TailMethod method{.law = tail_law, .density = 0.01};
    TailEstimator estimator(method);
    ExceedanceList list;
    uint64_t step = 0;
    for (const double scale : {1.0, 1.0, 0.95, 0.5, 0.5, 100.0, 100.0, 1e-3, 1e-3, 1.0}) {
      for (const int stages : {2, 2, 3, 3, 5, 5, 1, 2}) {
        auto values = draw(step % 3 == 0 ? "t3" : "laplace", 20011, step);
        ++step;
        for (float& value : values) value *= static_cast<float>(scale);
        const Kept want = estimate(method, values, stages);
        ASSERT_TRUE(estimator.begin(values, kernel::moments(values)));
        const auto got = estimator.estimate(stages, list);
        EXPECT_EQ(got.threshold, want.threshold) << stages << " " << scale;
        if (got.listed) {
          EXPECT_EQ(list.size(), want.count);
        }
        ASSERT_TRUE(estimator.begin(values, kernel::moments(values)));
        const auto choice = estimator.nearest(7, 200, list);
        TailEstimator fresh(method);
        ASSERT_TRUE(fresh.begin(values, kernel::moments(values)));
        ExceedanceList other;
        const auto plain = fresh.nearest(7, 200, other);
        EXPECT_EQ(choice.stages, plain.stages);
        EXPECT_EQ(choice.estimate.threshold, plain.estimate.threshold);
      }
    }
  }
}

TEST(TailEstimator, HasNothingToFitIn) {
  TailEstimator estimator({});
  const auto fits = [&](const std::vector<float>& values) {
    return estimator.begin(values, kernel::moments(values));
  };
  EXPECT_FALSE(fits({}));
  EXPECT_FALSE(fits(draw("normal", TailEstimator::kFewest - 1)));
  EXPECT_TRUE(fits(draw("normal", TailEstimator::kFewest)));
  EXPECT_FALSE(fits(std::vector<float>(1000, 0.0f)));
  for (const float value : {1.0f, 0.1f, 1e-38f, 3e38f}) {
    std::vector<float> alike(100003, value);
    for (size_t i = 0; i < alike.size(); i += 3) alike[i] = -value;
    EXPECT_FALSE(fits(alike)) << value;
    alike[5] = value / 2;
    EXPECT_TRUE(fits(alike)) << value;
  }
}

TEST(TailEstimator, StopsWhereTheTailRunsOut) {
  // Fewer than kFew above the first threshold.
  std::vector<float> values = draw("normal", 10000);
  for (float& value : values) value = 1 + 0.001f * value;
  for (size_t i = 0; i < 5; ++i) values[i * 100] = 50.0f + static_cast<float>(i);
  for (const TailLaw tail_law : {TailLaw::kExponential, TailLaw::kPareto}) {
    const TailMethod method{.law = tail_law, .density = 0.001, .first_ratio = 0.05};
    const Kept two = estimate(method, values, 2);
    EXPECT_EQ(two.count, 5u);
    for (const int stages : {3, 7, 10})
      EXPECT_EQ(estimate(method, values, stages).threshold, two.threshold);
  }
  // A quarter alike, far above the rest: nothing tells them apart.
  values = draw("laplace", 10000);
  for (size_t i = 0; i < values.size(); i += 5) values[i] = i % 2 == 0 ? 100.0f : -100.0f;
  for (const int stages : {2, 3, 10}) {
    const Kept kept = estimate({.density = 0.001}, values, stages);
    EXPECT_EQ(kept.count, 2000u);
    EXPECT_LT(kept.threshold, 100.0f);
  }
}

TEST(TailEstimator, SurvivesTheEndsOfTheRange) {
  for (const float unit : {std::numeric_limits<float>::max(), 1e30f, 1e-30f, 1e-38f, 1e-42f}) {
    auto values = draw("normal", 5000);
    const float largest = kernel::moments(values).abs_max;
    for (float& value : values) value = value / largest * unit;
    for (const TailLaw tail_law : kTailLaws)
      for (int stages = 1; stages <= 5; ++stages) {
        const Kept kept = estimate({.law = tail_law, .density = 0.05}, values, stages);
        EXPECT_TRUE(std::isfinite(kept.threshold) && kept.threshold >= 0);
        EXPECT_LT(kept.count, values.size() / 2) << unit << " M " << stages;
      }
  }
}

}  // namespace
}  // namespace thinwire
