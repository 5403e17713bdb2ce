// gaussiank: the law's threshold, its adjustments, bounds, and vectors that have no law.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 100'003;

// The paper's loop, with sums in long double.
size_t oracle(std::span<const float> x, double quantile, size_t k, int adjustments) {
  long double sum = 0, square_sum = 0;
  for (const float value : x) sum += value;
  const long double mean = sum / x.size();
  for (const float value : x) square_sum += (value - mean) * (value - mean);
  double t =
      static_cast<double>(std::abs(mean) + quantile * std::sqrt(square_sum / (x.size() - 1)));
  for (;; --adjustments) {
    const auto kept = static_cast<size_t>(
        std::count_if(x.begin(), x.end(), [&](float value) { return std::abs(value) > t; }));
    const double share = static_cast<double>(kept) / static_cast<double>(k);
    if (adjustments == 0 || (share >= 2.0 / 3 && share <= 4.0 / 3)) return kept;
    t *= share < 1 ? 0.5 : 1.5;
  }
}

TEST(Gaussiank, KeepsWhatThePapersLoopKeeps) {
  for (const Law law : {normal, laplace, student3}) {
    std::vector<float> vectors[2] = {draw(law, 0, kCount), draw(law, 1, kCount)};
    for (float& value : vectors[1]) value = 0.5f * value + 0.01f;
    for (const auto& [density, quantile] : {std::pair{"0.1", 1.6448536269514722},
                                            {"0.01", 2.5758293035489},
                                            {"0.001", 3.2905267314919}})
      for (const int adjustments : {0, 1, 2, 3, 5}) {
        Sender sender("gaussiank:cap=0,density=" + std::string(density) +
                          ",adjustments=" + std::to_string(adjustments),
                      kCount);
        for (const size_t i : {0, 1, 0}) {  // lists reach further down after the first
          const Encoded encoded = sender.step(vectors[i], false);
          const size_t want = oracle(vectors[i], quantile, encoded.target, adjustments);
          if (want > 0) {
            EXPECT_EQ(encoded.kept, want) << density << " " << adjustments;
          }
        }
      }
  }
}

TEST(Gaussiank, NormalVectorsNeedNoAdjustment) {
  for (const std::string density : {"0.1", "0.01", "0.001"}) {
    Sender sender("gaussiank:adjustments=0,density=" + density, kCount);
    const Encoded encoded = sender.step(draw(normal, 0, kCount));
    const auto target = static_cast<double>(encoded.target);
    EXPECT_NEAR(static_cast<double>(encoded.kept), target, 5 * std::sqrt(target));
  }
}

TEST(Gaussiank, SendsTheLargestAndLosesNothing) {
  for (const Law law : {normal, student3}) {
    Sender sender("gaussiank", kCount);
    for (uint64_t step = 0; step < 6; ++step) {
      const Encoded encoded = sender.step(draw(law, step, kCount));
      EXPECT_LE(encoded.kept, 4 * encoded.target);
      EXPECT_GT(encoded.kept, 0u);
      EXPECT_GT(sender.least_sent(), sender.largest_left());
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(sender.sent[i] + sender.residual[i], sender.before[i]);
    }
  }
}

TEST(Gaussiank, AVectorAndItsNegativeKeepTheSame) {
  auto values = draw(laplace, 0, kCount);
  for (float& value : values) value -= 0.7f;
  Sender one("gaussiank", kCount), other("gaussiank", kCount);
  one.step(values);
  for (float& value : values) value = -value;
  other.step(values);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(one.sent[i], -other.sent[i]);
}

TEST(Gaussiank, CapKeepsTheLargestOfTooMany) {
  const auto values = draw(laplace, 0, kCount);  // 2.6 times the target pass at first
  Sender open("gaussiank:adjustments=0,cap=0", kCount),
      capped("gaussiank:adjustments=0,cap=2", kCount);
  EXPECT_GT(open.step(values).kept, 2100u);
  EXPECT_EQ(capped.step(values).kept, 2000u);
  EXPECT_LT(capped.bound(), open.bound());
  EXPECT_GT(capped.least_sent(), capped.largest_left());
}

TEST(Gaussiank, DegenerateVectorsHaveAnAnswer) {
  Sender sender("gaussiank", 5000);
  EXPECT_EQ(sender.step(std::vector<float>(5000)).kept, 0u);
  // sigma = 0: the target, exactly.
  EXPECT_EQ(sender.step(std::vector<float>(5000, -1.5f), false).kept, 50u);
  // Nearly so, and far from zero: the law's threshold steps over them all.
  std::vector<float> values(5000);
  for (size_t i = 0; i < 5000; ++i) values[i] = 1 + 0.1f * normal(0, i);
  EXPECT_EQ(sender.step(values, false).kept, 50u);
  EXPECT_GT(sender.least_sent(), sender.largest_left());

  std::vector<float> spike(5000);
  spike[77] = 1e-40f;
  EXPECT_EQ(sender.step(spike, false).kept, 1u);
  EXPECT_EQ(sender.sent, spike);

  Sender everything("gaussiank:density=1", 100);
  EXPECT_EQ(everything.step(draw(normal, 0, 100)).kept, 100u);
  for (const size_t count : {1, 2, 3, 10}) {
    Sender few("gaussiank", count);
    EXPECT_GE(few.step(draw(normal, 0, count)).kept, 1u);
  }
  Sender none("gaussiank", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
}

TEST(Gaussiank, RefusesWhatItCannotUse) {
  EXPECT_FALSE(make_codec("gaussiank:density=0").is_ok());
  EXPECT_FALSE(make_codec("gaussiank:adjustments=11").is_ok());
  Sender sender("gaussiank", 100);
  std::vector<float> bad(100, 1.0f);
  bad[3] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> out(sender.bound());
  EXPECT_THROW(sender.encoder().encode({.values = bad}, {}, out, {}), Error);
}

}  // namespace
}  // namespace thinwire::testing
