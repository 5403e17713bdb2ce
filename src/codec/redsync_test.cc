// redsync: the search, thresholds that serve on, the exact form, signs in turn, saved state.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 50'021;

size_t count_above(std::span<const float> x, double threshold) {
  return static_cast<size_t>(
      std::count_if(x.begin(), x.end(), [&](float value) { return std::abs(value) > threshold; }));
}

// The bisection of the paper, straight.
double oracle(std::span<const float> x, size_t k, double resolution) {
  double sum = 0, largest = 0;
  for (const float value : x) {
    sum += std::abs(value);
    largest = std::max(largest, std::abs(double{value}));
  }
  const double mean = sum / static_cast<double>(x.size());
  double low = 0, high = 1, threshold = 0;
  while (high - low > resolution) {
    const double r = (low + high) / 2;
    threshold = mean + r * (largest - mean);
    const size_t kept = count_above(x, threshold);
    if (kept >= k && kept <= 2 * k) break;
    (kept < k ? high : low) = r;
  }
  return threshold;
}

TEST(Redsync, KeepsWhatTheBisectionFinds) {
  for (const Law law : {normal, laplace, student3})
    for (const std::string density : {"0.1", "0.01", "0.001"})
      for (const double resolution : {0.2, 0.001}) {
        Sender sender("redsync:cap=0,reuse=1,density=" + density +
                          ",resolution=" + std::to_string(resolution),
                      kCount);
        for (uint64_t step = 0; step < 3; ++step) {
          const auto values = draw(law, step % 2, kCount);
          const Encoded encoded = sender.step(values, false);
          const size_t want = count_above(values, oracle(values, encoded.target, resolution));
          EXPECT_EQ(encoded.kept, want > 0 ? want : encoded.target);
          if (resolution == 0.001 && law != student3) {
            EXPECT_GE(want, encoded.target);
            EXPECT_LE(want, 2 * encoded.target);
          }
        }
      }
}

TEST(Redsync, AcceptsExactlyKAndTwiceK) {
  std::vector<float> values(1000, 1.0f);
  for (size_t i = 0; i < 10; ++i) values[i * 7] = 100;
  Sender exactly("redsync:density=0.01", 1000), half("redsync:density=0.005", 1000);
  EXPECT_EQ(exactly.step(values).kept, 10u);
  EXPECT_EQ(half.step(values).kept, 10u);
}

// A threshold is found at one vector and serves five, whatever these are.
TEST(Redsync, AThresholdServesAsLongAsAgreed) {
  Sender sender("redsync:cap=0,density=0.01", kCount);
  const auto values = draw(laplace, 0, kCount);
  auto louder = values;
  for (float& value : louder) value *= 2;
  const double threshold = oracle(values, 500, 0.001);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(sender.step(values, false).kept, count_above(values, threshold));
    for (int step = 1; step < 5; ++step)
      EXPECT_EQ(sender.step(louder, false).kept, count_above(louder, threshold));
    if (round == 1) {
      EXPECT_EQ(sender.step(louder, false).kept, count_above(louder, oracle(louder, 500, 0.001)));
    }
  }
}

TEST(Redsync, AThresholdThatNothingExceedsIsReplaced) {
  Sender sender("redsync", kCount);
  auto values = draw(laplace, 0, kCount);
  sender.step(values, false);
  for (float& value : values) value *= 1e-3f;
  EXPECT_GE(sender.step(values, false).kept, 500u);
}

TEST(Redsync, CapKeepsTheLargestOfTooMany) {
  Sender sender("redsync:cap=3", kCount);
  auto values = draw(laplace, 0, kCount);
  sender.step(values, false);
  for (float& value : values) value *= 10;
  EXPECT_EQ(sender.step(values, false).kept, 1500u);
  EXPECT_GT(sender.least_sent(), sender.largest_left());
}

TEST(Redsync, TrimmedIsExact) {
  for (const std::string density : {"0.5", "0.01", "0.0001"})
    for (const Law law : {normal, student3}) {
      Sender trimmed("redsync:search=trimmed,density=" + density, kCount);
      Sender best("topk:density=" + density, kCount);
      for (uint64_t step = 0; step < 4; ++step) {
        auto values = draw(law, step, kCount);
        if (step == 3)
          for (float& value : values) value *= 0.01f;
        trimmed.step(values, step != 3);
        best.step(values, step != 3);
        ASSERT_EQ(trimmed.sent, best.sent);
        ASSERT_EQ(trimmed.residual, best.residual);
      }
    }
}

TEST(Redsync, QuantizedSendsTheMeanOfOneSignInTurn) {
  for (const std::string search : {"threshold", "trimmed"}) {
    Sender sender("redsync:quantized=true,search=" + search, kCount);
    for (uint64_t step = 0; step < 8; ++step) {
      const Encoded encoded = sender.step(draw(laplace, step, kCount));
      const float mean =
          *std::max_element(sender.sent.begin(), sender.sent.end(),
                            [](float a, float b) { return std::abs(a) < std::abs(b); });
      EXPECT_EQ(mean > 0, step % 2 == 0);
      double sum = 0;
      size_t sent = 0;
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(sender.residual[i], sender.before[i] - sender.sent[i]);
        if (sender.sent[i] == 0) continue;
        ASSERT_EQ(sender.sent[i], mean);
        ASSERT_EQ(sender.before[i] > 0, mean > 0);
        sum += sender.before[i];
        ++sent;
      }
      EXPECT_EQ(sent, encoded.kept);
      EXPECT_EQ(mean, static_cast<float>(sum / static_cast<double>(sent)));
      if (search == "trimmed") {
        EXPECT_EQ(sent, encoded.target);
      }
      EXPECT_LT(8 * sender.payload.size(), 10 * sent + 160);  // positions, and one mean
    }
  }
}

TEST(Redsync, QuantizedTakesTheOtherSignWhereThereIsNone) {
  Sender sender("redsync:quantized=true", 1000);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> values = draw(laplace, 0, 1000);
    for (float& value : values) value = -std::abs(value);
    EXPECT_GE(sender.step(values, false).kept, 10u);
  }
}

TEST(Redsync, TurnsAndThresholdsAreSavedAndRolledBack) {
  for (const std::string spec : {"redsync", "redsync:quantized=true"}) {
    Sender straight(spec, kCount), bumpy(spec, kCount);
    for (uint64_t step = 0; step < 13; ++step) {
      const auto values = draw(laplace, step, kCount);
      const auto other = draw(student3, step, kCount);
      std::vector<std::byte> out(bumpy.bound());
      bumpy.encoder().encode({.values = other}, {}, out, {});  // a step that never happened
      bumpy.encoder().rollback();
      straight.step(values, false);
      bumpy.step(values, false);
      ASSERT_EQ(bumpy.payload, straight.payload) << step;
      Sender fresh(spec, kCount);
      ASSERT_TRUE(fresh.encoder().load(bumpy.encoder().save()));
      const auto saved = fresh.encoder().save();
      for (size_t i = 0; i < saved.size(); ++i)
        EXPECT_EQ(saved[i].data, bumpy.encoder().save()[i].data);
    }
  }
}

TEST(Redsync, RefusesAStateOutOfRange) {
  Sender sender("redsync:reuse=3", 100);
  const auto load = [&](float threshold, int64_t age, int64_t turn) {
    const float thresholds[] = {threshold, 0};
    const int64_t ages[] = {age, 0, turn};
    return sender.encoder().load(
        {make_state("thresholds", std::span<const float>(thresholds), OnResize::kCopy),
         make_state("ages", std::span<const int64_t>(ages), OnResize::kCopy)});
  };
  EXPECT_TRUE(load(1, 2, 1));
  EXPECT_FALSE(load(1, 3, 0));
  EXPECT_FALSE(load(1, -1, 0));
  EXPECT_FALSE(load(1, 0, 2));
  EXPECT_FALSE(load(-1, 1, 0));
  EXPECT_FALSE(load(std::numeric_limits<float>::infinity(), 1, 0));
  EXPECT_FALSE(sender.encoder().load({}));
}

TEST(Redsync, DegenerateVectorsHaveAnAnswer) {
  for (const std::string spec :
       {"redsync", "redsync:search=trimmed", "redsync:quantized=true",
        "redsync:quantized=true,search=trimmed", "redsync:reuse=1,resolution=0.5"}) {
    Sender sender(spec, 5000);
    EXPECT_EQ(sender.step(std::vector<float>(5000)).kept, 0u) << spec;
    // max = mean: the target, exactly, of whatever sign there is.
    EXPECT_EQ(sender.step(std::vector<float>(5000, -1.5f), false).kept, 50u) << spec;
    // One value far beyond all others.
    std::vector<float> spike(5000);
    spike[4000] = 1e30f;
    EXPECT_EQ(sender.step(spike, false).kept, 1u) << spec;
    EXPECT_EQ(sender.sent, spike) << spec;
    for (const size_t count : {1, 2, 3, 10}) {
      Sender few(spec, count);
      EXPECT_GE(few.step(draw(normal, 0, count)).kept, 1u) << spec;
    }
    Sender none(spec, 0);
    EXPECT_EQ(none.step({}).kept, 0u) << spec;
  }
  Sender everything("redsync:density=1", 100);
  EXPECT_EQ(everything.step(draw(normal, 0, 100)).kept, 100u);
}

}  // namespace
}  // namespace thinwire::testing
