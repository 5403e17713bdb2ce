// Adam's step against a plain loop: every target, length, setting, and values that are not finite.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/adam_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernel/for_each_target.h"
#include "thinwire/threads.h"

namespace thinwire::kernel {
namespace {

struct Values {
  std::vector<float> gradient, mean, square, weights;
};

// Gradients of many sizes, down to those whose squares are below the least normal float.
Values values_of(size_t count) {
  Values values;
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i);
    values.gradient.push_back(
        static_cast<float>(std::sin(x + 0.5) * std::exp2(-static_cast<double>(i % 80))));
    values.mean.push_back(static_cast<float>(std::cos(x) * std::exp2(-static_cast<double>(i % 7))));
    values.square.push_back(static_cast<float>(std::exp2(-static_cast<double>(i % 140))));
    values.weights.push_back(static_cast<float>(std::sin(2 * x)));
  }
  return values;
}

void step_by_loop(const AdamNumbers& n, Values& values) {
  for (size_t i = 0; i < values.gradient.size(); ++i) {
    const float decayed = n.decay * values.weights[i];
    const float g = values.gradient[i] + decayed;
    const float old_mean = n.beta1 * values.mean[i], new_mean = n.rest1 * g;
    values.mean[i] = old_mean + new_mean;
    const float old_square = n.beta2 * values.square[i], part = n.rest2 * g, new_square = part * g;
    values.square[i] = old_square + new_square;
    // The root in double is within 2^-52 of the exact one, and no root of a float is as near to
    // where floats round.
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(values.square[i])));
    const float scaled = root / n.square_scale, least = n.least * std::abs(values.mean[i]);
    const float under = std::max(scaled, least) + n.epsilon;
    const float over = n.rate * values.mean[i], change = over / under;
    values.weights[i] -= change;
  }
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr AdamNumbers kUsual = {.beta1 = 0.9f,
                                .rest1 = 0.1f,
                                .beta2 = 0.999f,
                                .rest2 = 0.001f,
                                .rate = 0.01f,
                                .square_scale = 0.0316f,
                                .epsilon = 1e-8f};

TEST(AdamStep, IsThatOfAPlainLoopOnEveryTarget) {
  AdamNumbers decaying = kUsual, without_mean = kUsual, bounded = kUsual;
  decaying.decay = 0.03f;
  without_mean.beta1 = 0;
  without_mean.rest1 = 1;
  bounded.beta2 = 1;
  bounded.rest2 = 0;
  bounded.least = 3;
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const AdamNumbers& numbers : {kUsual, decaying, without_mean, bounded}) {
      for (size_t count = 0; count <= 300; count += count < 70 ? 1 : 23) {
        Values want = values_of(count), got = want;
        step_by_loop(numbers, want);
        adam_step(numbers, got.gradient, got.mean, got.square, got.weights);
        ASSERT_TRUE(same(got.mean, want.mean)) << count;
        ASSERT_TRUE(same(got.square, want.square)) << count;
        ASSERT_TRUE(same(got.weights, want.weights)) << count;
      }
    }
  });
}

TEST(AdamStep, IsTheSameOnSeveralThreads) {
  Values one = values_of(1'000'003), three = one;
  adam_step(kUsual, one.gradient, one.mean, one.square, one.weights);
  set_codec_threads(3);
  adam_step(kUsual, three.gradient, three.mean, three.square, three.weights);
  set_codec_threads(1);
  EXPECT_TRUE(same(three.weights, one.weights));
  EXPECT_TRUE(same(three.square, one.square));
}

TEST(AdamStep, LeavesValuesThatAreNotFiniteWhereTheyAre) {
  using Limits = std::numeric_limits<float>;
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const float bad : {Limits::infinity(), Limits::quiet_NaN()}) {
      for (const size_t at : {size_t{0}, size_t{20}, size_t{36}}) {
        Values values = values_of(37);
        values.gradient[at] = bad;
        adam_step(kUsual, values.gradient, values.mean, values.square, values.weights);
        for (size_t i = 0; i < 37; ++i)
          EXPECT_EQ(std::isfinite(values.weights[i]), i != at) << at << ' ' << i;
      }
    }
  });
}

}  // namespace
}  // namespace thinwire::kernel
