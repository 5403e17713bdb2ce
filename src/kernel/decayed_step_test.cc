// The step of SGD with decay against a plain loop: every target, length and setting.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/decayed_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernel/for_each_target.h"
#include "thinwire/threads.h"

namespace thinwire::kernel {
namespace {

struct Values {
  std::vector<float> gradient, velocity, weights;
};

Values values_of(size_t count) {
  Values values;
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i);
    values.gradient.push_back(
        static_cast<float>(std::sin(x + 0.5) * std::exp2(-static_cast<double>(i % 40))));
    values.velocity.push_back(
        static_cast<float>(std::cos(x) * std::exp2(-static_cast<double>(i % 7))));
    values.weights.push_back(static_cast<float>(std::sin(2 * x)));
  }
  return values;
}

void step_by_loop(const DecayedStep& n, Values& values) {
  for (size_t i = 0; i < values.gradient.size(); ++i) {
    const float own = n.decay * values.weights[i], added = n.rest * own;
    const float old = n.momentum * values.velocity[i];
    values.velocity[i] = old + added;
    const float ahead = n.momentum * values.velocity[i], looking = own + ahead;
    const float along = values.gradient[i] + (n.nesterov ? looking : values.velocity[i]);
    const float change = n.rate * along;
    values.weights[i] -= change;
  }
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr DecayedStep kUsual = {.rate = 0.1f, .decay = 0.0005f, .momentum = 0.9f};

TEST(DecayedStep, IsThatOfAPlainLoopOnEveryTarget) {
  DecayedStep dampened = kUsual, nesterov = kUsual;
  dampened.rest = 0.7f;
  nesterov.nesterov = true;
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const DecayedStep& numbers : {kUsual, dampened, nesterov})
      for (size_t count = 0; count <= 300; count += count < 70 ? 1 : 23) {
        Values want = values_of(count), got = want;
        step_by_loop(numbers, want);
        decayed_step(numbers, got.gradient, got.velocity, got.weights);
        ASSERT_TRUE(same(got.velocity, want.velocity)) << count;
        ASSERT_TRUE(same(got.weights, want.weights)) << count;
      }
  });
}

TEST(DecayedStep, IsTheSameOnSeveralThreads) {
  Values one = values_of(1'000'003), three = one;
  decayed_step(kUsual, one.gradient, one.velocity, one.weights);
  set_codec_threads(3);
  decayed_step(kUsual, three.gradient, three.velocity, three.weights);
  set_codec_threads(1);
  EXPECT_TRUE(same(three.velocity, one.velocity));
  EXPECT_TRUE(same(three.weights, one.weights));
}

}  // namespace
}  // namespace thinwire::kernel
