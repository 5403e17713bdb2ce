// Tests of the problems by which the paper of LSGD argues, with full gradients (its LGD).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using Values = std::vector<float>;

// f and its gradient, summed over coordinates.
struct Landscape {
  std::function<double(double)> value;
  std::function<double(double)> slope;

  double at(std::span<const float> x) const {
    double sum = 0;
    for (const float one : x) sum += value(one);
    return sum;
  }
  void step(double rate, std::span<float> x) const {
    for (float& one : x) one -= static_cast<float>(rate * slope(one));
  }
  double steepest(std::span<const float> x) const {
    double largest = 0;
    for (const float one : x) largest = std::max(largest, std::abs(slope(one)));
    return largest;
  }
};

// Two minima of equal depth 0 at -1 and 1, a maximum of 1/4 between them.
Landscape equal_wells() {
  return {[](double x) { return (x * x - 1) * (x * x - 1) / 4; },
          [](double x) { return x * (x * x - 1); }};
}

// A minimum of -0.3 near -1.1, one of 0.2 near 0.85.
Landscape unequal_wells() {
  return {[](double x) { return (x * x - 1) * (x * x - 1) / 4 + 0.25 * x; },
          [](double x) { return x * (x * x - 1) + 0.25; }};
}

// Where `steps` of one worker lead, who starts at `start` and is told of its own new loss.
Values follow(Group& group, const Landscape& f, const Values& start, const std::string& method,
              int steps) {
  Store store;
  const Values zero(start.size());
  const auto sync = make_synchroniser(group, store, {{"x", {start.size()}, TensorKind::kLinear}},
                                      zero, {.method = method});
  Values x = start;
  for (int i = 0; i < steps; ++i) {
    f.step(0.05, x);
    sync->after_step(x, f.at(x));
  }
  return x;
}

const std::string kLeader = "leader:tau=1,tau_global=1,window=1,pull_global=";
const std::string kElastic = "easgd:tau=1,centre=mean,rate=";

// Workers in two wells, pulled weakly. Under LGD the leader stays where its gradient vanishes;
// under EASGD every worker comes to rest where the gradient and the pull cancel, which is no
// stationary point of f: it moved towards the point between the wells.
TEST(LsgdAnalysis, StationaryPointsStayUnderLeadersAndMoveUnderElasticAveraging) {
  run_local(4, [](Group& group) {
    const Landscape f = unequal_wells();
    const Values start(3, group.rank() % 2 == 0 ? -1.0f : 1.0f);

    const Values led = follow(group, f, start, kLeader + "0.005", 3000);
    const auto everybody = gather<float>(group, led);
    double best = 1e9;
    Values leader;
    for (const Values& x : everybody)
      if (f.at(x) < best) best = f.at(x), leader = x;
    EXPECT_LT(f.steepest(leader), 1e-5);
    EXPECT_LT(leader[0], -1.1f);  // in the deeper well

    // A further run moves the leader not at all: a fixed point of step and pull.
    for (const Values& x : gather<float>(group, follow(group, f, leader, kLeader + "0.005", 10)))
      for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], leader[i], 1e-6);

    const Values averaged = follow(group, f, start, kElastic + "0.005", 3000);
    EXPECT_GT(f.steepest(averaged), 0.05);
    const bool left = group.rank() % 2 == 0;
    const Values alone = follow(group, f, start, kElastic + "0", 3000);
    EXPECT_LT(f.steepest(alone), 1e-5);
    EXPECT_EQ(averaged[0] > alone[0], left) << "moved away from the other well";
  });
}

// The curse of symmetry: workers that descend on both sides of a maximum pull each other back to
// it.
TEST(LsgdAnalysis, AveragingBetweenEqualMinimaStallsAndFollowingALeaderDoesNot) {
  run_local(4, [](Group& group) {
    const Landscape f = equal_wells();
    Values start(4);
    for (size_t i = 0; i < start.size(); ++i)
      start[i] = ((group.rank() + static_cast<int>(i)) % 2 == 0 ? 0.5f : -0.5f);

    // Strong enough to hold them: a pull of 0.06 a step against a slope of at most 1 x 0.05.
    const Values averaged = follow(group, f, start, kElastic + "0.06", 2000);
    EXPECT_NEAR(f.at(averaged), 4 * 0.25, 1e-6);
    const Values led = follow(group, f, start, kLeader + "0.06", 2000);
    EXPECT_LT(f.at(led), 1e-6);

    // Weaker, the workers find their minima, but what is judged, their mean, is at the maximum.
    const Values apart = follow(group, f, start, kElastic + "0.01", 2000);
    EXPECT_LT(f.at(apart), 0.2);
    Values mean(apart.size());
    for (const Values& x : gather<float>(group, apart))
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += x[i] / 4;
    EXPECT_NEAR(f.at(mean), 4 * 0.25, 1e-6);
  });
}

// Theorem for strongly convex f without noise, p = eta lambda being the pull, x' the step's result
// and z' the leader's: f(x+) - f* <= (1 - m eta) (f(x) - f*) - p (f(x') - f(z')). Every step of
// every worker, with curvatures from m = 0.5 to M = 2 and eta = 0.2.
TEST(LsgdAnalysis, AStronglyConvexQuadraticKeepsThePublishedRate) {
  constexpr double kEta = 0.2, kLeast = 0.5, kPull = 0.1;
  constexpr size_t kSize = 16;
  const auto curvature = [](size_t i) { return 0.5 + 0.1 * static_cast<double>(i); };
  const auto f = [&](std::span<const float> x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += curvature(i) * static_cast<double>(x[i]) * static_cast<double>(x[i]) / 2;
    return sum;
  };
  run_local(4, [&](Group& group) {
    Store store;
    Values x(kSize, 0.0f);
    const auto sync = make_synchroniser(group, store, {{"x", {kSize}, TensorKind::kLinear}}, x,
                                        {.method = kLeader + "0.1"});
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(1 + group.rank()) * (i % 2 == 0 ? 1.0f : -0.5f);
    Values alone = x;
    for (int k = 0; k < 60; ++k) {
      const double before = f(x);
      for (Values* values : {&x, &alone})
        for (size_t i = 0; i < values->size(); ++i)
          (*values)[i] -= static_cast<float>(kEta * curvature(i)) * (*values)[i];
      const double stepped = f(x);
      const auto report = sync->after_step(x, stepped);
      const double best = report->losses[static_cast<size_t>(report->leader)];
      EXPECT_LE(f(x), (1 - kLeast * kEta) * before - kPull * (stepped - best) + 1e-6 * before)
          << "step " << k;
      EXPECT_LE(f(x), f(alone) * (1 + 1e-6)) << "a pull that did harm";
    }
    EXPECT_LT(f(x), std::pow(1 - kLeast * kEta, 60) * 100);
  });
}

}  // namespace
}  // namespace thinwire::testing
