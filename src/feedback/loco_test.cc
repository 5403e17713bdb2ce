// LoCo against the loop of its definition: the average, its bytes, its resets.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

// What eight bits with a scale per 256 values make of `values`, in double.
std::vector<double> in_bytes(const std::vector<double>& values) {
  std::vector<double> out(values.size());
  for (size_t begin = 0; begin < values.size(); begin += 256) {
    const size_t end = std::min(begin + 256, values.size());
    double max = 0;
    for (size_t i = begin; i < end; ++i) max = std::max(max, std::abs(values[i]));
    for (size_t i = begin; i < end && max > 0; ++i)
      out[i] = std::nearbyint(values[i] / max * 127) * (max / 127);
  }
  return out;
}

TEST(LoCo, IsAMovingAverageOfErrorsInEightBits) {
  const auto memory = make("loco:beta=0.6");
  std::vector<double> e(kCount);
  size_t off = 0;
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    const Values before = saved(*memory, "residual");
    const Step made = step(*memory, g, number);
    std::vector<double> average(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(made.values[i], double{g[i]} + before[i], 1e-6);
      average[i] = 0.6 * before[i] + 0.4 * made.rest[i];
    }
    const std::vector<double> want = in_bytes(average);
    const Values got = saved(*memory, "residual");
    for (size_t i = 0; i < kCount; ++i) {
      if (std::abs(got[i] - want[i]) < 1e-6) continue;
      ++off;  // a tie that rounding in float moved: to the next of 127 steps
      ASSERT_NEAR(got[i], average[i], 2.0 * 0.51 / 127);
    }
  }
  EXPECT_LT(off, 6 * kCount / 1000);
}

TEST(LoCo, ClearsTheErrorAfterEverySoManySteps) {
  const auto memory = make("loco:reset=4");
  const Values zeros(kCount);
  for (uint64_t number = 0; number < 12; ++number) {
    step(*memory, gradient(number), number);
    EXPECT_EQ(saved(*memory, "residual") == zeros, number % 4 == 3) << number;
  }
  // A resumed run goes on where the step number says.
  const auto resumed = make("loco:reset=4");
  step(*resumed, gradient(15), 15);
  EXPECT_EQ(saved(*resumed, "residual"), zeros);
}

TEST(LoCo, BringsBackAShareOfTheErrorOnly) {
  const auto memory = make("loco:beta=0.75", 512);
  step(*memory, Values(512, 4.0f), 0, [](std::span<float>, uint64_t) {});
  EXPECT_EQ(saved(*memory, "residual", 512), Values(512, 1.0f));
}

// With a scale of a power of two nothing is rounded: at beta = 0 that is the residual.
TEST(LoCo, WithoutAverageIsTheResidualInEightBits) {
  const auto memory = make("loco:beta=0", 256), residual = make("residual", 256);
  for (uint64_t number = 0; number < 5; ++number) {
    Values g(256);
    for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>((i * 37 + number) % 32);
    g[0] = 254 - 31 * static_cast<float>(number);
    const Encode encode = [](std::span<float> rest, uint64_t) {
      for (size_t i = 0; i < rest.size(); ++i) rest[i] = i == 0 ? 127.0f : std::fmod(rest[i], 16);
    };
    expect_same_bits(step(*memory, g, number, encode).values,
                     step(*residual, g, number, encode).values);
    expect_same_bits(saved(*memory, "residual", 256), saved(*residual, "residual", 256));
  }
}

TEST(LoCo, DamagedBytesAreNotUsed) {
  const auto memory = make("loco", 300), again = make("loco", 300);
  step(*memory, gradient(0, 0, 300), 0);
  StateArrays state = memory->save();
  for (std::byte& byte : state[1].data) byte = std::byte{0xFF};  // no scale is negative
  ASSERT_TRUE(again->load(state));
  const Values got = saved(*again, "residual", 300), want = saved(*memory, "residual", 300);
  for (size_t i = 0; i < 300; ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
  float bad[300] = {};
  bad[7] = NAN;
  state[0] = make_state("residual", std::span<const float>(bad), OnResize::kOwedToMean);
  EXPECT_EQ(again->load(state).code(), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace thinwire::testing
