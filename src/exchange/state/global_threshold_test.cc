// How near the target a threshold stays, its bound, and its transaction.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/state/global_threshold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 40000;

// Three streams of different scales, which share a threshold; fed with residuals.
class Streams {
 public:
  explicit Streams(double density) : residual(kCount) { aim(density); }

  void aim(double density) {
    density_ = density;
    threshold.aim(target());
  }
  size_t target() const { return static_cast<size_t>(density_ * kCount); }

  // Values [0, 500), [500, 8000) and the others, times 8, 1 and 1/2, and all times `scale`. Returns
  // what was kept.
  size_t step(Law law, uint64_t number, float scale = 1) {
    static constexpr size_t kEnds[] = {500, 8000, kCount};
    static constexpr float kScales[] = {8, 1, 0.5f};
    size_t begin = 0, kept = 0;
    thresholds.clear();
    for (size_t s = 0; s < 3; ++s) {
      const std::span<float> part = std::span(residual).subspan(begin, kEnds[s] - begin);
      for (size_t i = 0; i < part.size(); ++i)
        part[i] += scale * kScales[s] * law(number, begin + i);
      const auto own = static_cast<size_t>(density_ * static_cast<double>(part.size()));
      const auto quota = threshold.quota_for(part, own, {.seed = 7, .step = number}, s);
      const size_t now = quota ? send_above(part, *quota) : send_largest(part, own);
      if (quota) {
        EXPECT_GE(quota->most, own);
        thresholds.push_back(quota->threshold);
      }
      threshold.sent(now);
      kept += now;
      begin = kEnds[s];
    }
    return kept;
  }

  GlobalThreshold threshold;
  std::vector<float> thresholds;  // of this step's streams
  std::vector<float> residual;

 private:
  static size_t send_above(std::span<float> part, const Quota& quota) {
    const auto above = static_cast<size_t>(std::count_if(
        part.begin(), part.end(), [&](float v) { return std::abs(v) > quota.threshold; }));
    return send_largest(part, std::min(above, quota.most));
  }
  static size_t send_largest(std::span<float> part, size_t most) {
    std::vector<float*> order;
    for (float& value : part) order.push_back(&value);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                      [](const float* a, const float* b) { return std::abs(*a) > std::abs(*b); });
    for (size_t i = 0; i < most; ++i) *order[i] = 0;
    return most;
  }

  double density_ = 0;
};

void expect_same_state(const Streams& one, const Streams& other) {
  const StateArrays states = one.threshold.save(), expected = other.threshold.save();
  ASSERT_EQ(states.size(), expected.size());
  for (size_t i = 0; i < states.size(); ++i)
    EXPECT_EQ(states[i].data, expected[i].data) << states[i].name;
}

double over(size_t kept, size_t target) {
  return static_cast<double>(kept) / static_cast<double>(target);
}

TEST(GlobalThreshold, StaysNearTheTargetOnceItKnowsTheSignal) {
  for (const Law law : {laplace, normal, student3})
    for (const double density : {0.1, 0.01}) {
      Streams streams(density);
      for (uint64_t step = 0; step < 40; ++step) {
        const double ratio = over(streams.step(law, step), streams.target());
        streams.threshold.commit();
        if (step < 20) continue;
        EXPECT_NEAR(ratio, 1, 0.2) << density << ", step " << step;
      }
    }
}

// What the streams of a step have so far moves it a little.
TEST(GlobalThreshold, IsNearlyOneForAllStreams) {
  Streams streams(0.01);
  for (uint64_t step = 0; step < 20; ++step) {
    streams.step(laplace, step);
    streams.threshold.commit();
    ASSERT_EQ(streams.thresholds.size(), step == 0 ? 0u : 3u);
    const auto [least, most] =
        std::minmax_element(streams.thresholds.begin(), streams.thresholds.end());
    if (step == 1) {  // the shares of streams are not known yet
      EXPECT_EQ(*least, *most);
    } else if (step > 10) {
      EXPECT_LT(*most, 1.2f * *least) << step;
    }
  }
}

// The gradients of a batch may be larger than those of the last one in all streams. What is sent
// first shows it.
TEST(GlobalThreshold, LaterStreamsMakeUpForTheScaleOfTheBatch) {
  for (const float other : {1.25f, 0.8f}) {
    Streams streams(0.02);
    for (uint64_t step = 0; step < 40; ++step) {
      std::fill(streams.residual.begin(), streams.residual.end(), 0.0f);
      const bool unlike = step > 20 && step % 2 == 0;
      const double ratio = over(streams.step(laplace, step, unlike ? other : 1), streams.target());
      streams.threshold.commit();
      if (step > 20) {
        EXPECT_NEAR(ratio, 1, 0.2) << other << ", step " << step;
      }
    }
  }
}

// Warm-ups: the next step has the new target already.
TEST(GlobalThreshold, FollowsAnotherTargetAtOnce) {
  for (const auto& [first, then] : {std::pair{0.25, 0.02}, std::pair{0.02, 0.25}}) {
    Streams streams(first);
    for (uint64_t step = 0; step < 10; ++step) {
      std::fill(streams.residual.begin(), streams.residual.end(), 0.0f);
      streams.step(laplace, step);
      streams.threshold.commit();
    }
    streams.aim(then);
    std::fill(streams.residual.begin(), streams.residual.end(), 0.0f);
    EXPECT_NEAR(over(streams.step(laplace, 10), streams.target()), 1, 0.15) << first;
  }
}

// What changes the scale of gradients at once: another loss scale, another loss.
TEST(GlobalThreshold, FollowsAnotherScaleAfterOneStep) {
  for (const float scale : {100.0f, 0.01f}) {
    Streams streams(0.02);
    for (uint64_t step = 0; step < 14; ++step) {
      std::fill(streams.residual.begin(), streams.residual.end(), 0.0f);
      const double ratio =
          over(streams.step(normal, step, step < 10 ? 1.0f : scale), streams.target());
      EXPECT_LE(ratio, 2.0) << step;
      streams.threshold.commit();
      if (step == 0 || step == 10) continue;
      EXPECT_NEAR(ratio, 1, 0.2) << scale << ", step " << step;
    }
  }
}

TEST(GlobalThreshold, BoundsWhatAStepSends) {
  Streams streams(0.05);
  streams.step(laplace, 0);
  streams.threshold.commit();
  EXPECT_EQ(streams.step(laplace, 1, 1000), 2 * streams.target());
}

// Before anything is known, while thresholds are those of a usual step, and when shares are known.
TEST(GlobalThreshold, ASkippedStepLeavesNoTrace) {
  for (const uint64_t committed : {0, 1, 4}) {
    Streams streams(0.02), plain(0.02);
    for (uint64_t step = 0; step < committed; ++step)
      for (Streams* one : {&streams, &plain}) {
        one->step(laplace, step);
        one->threshold.commit();
      }
    const std::vector<float> residual = streams.residual;
    streams.step(student3, 9, 50);
    streams.threshold.rollback();
    expect_same_state(streams, plain);

    streams.residual = residual;
    for (uint64_t step = committed; step < committed + 3; ++step) {
      EXPECT_EQ(streams.step(laplace, step), plain.step(laplace, step));
      EXPECT_EQ(streams.thresholds, plain.thresholds);
      streams.threshold.commit();
      plain.threshold.commit();
      expect_same_state(streams, plain);
    }
  }
}

// A rank that sits a step out offers nothing.
TEST(GlobalThreshold, AStepWithoutStreamsChangesNothing) {
  Streams streams(0.02), plain(0.02);
  for (Streams* one : {&streams, &plain}) {
    one->step(laplace, 0);
    one->threshold.commit();
  }
  streams.threshold.commit();
  expect_same_state(streams, plain);
}

TEST(GlobalThreshold, GoesOnFromASavedState) {
  Streams streams(0.02);
  for (uint64_t step = 0; step < 4; ++step) {
    streams.step(laplace, step);
    streams.threshold.commit();
  }
  Streams resumed(0.02);
  resumed.residual = streams.residual;
  ASSERT_TRUE(resumed.threshold.load(streams.threshold.save()));
  for (uint64_t step = 4; step < 7; ++step) {
    EXPECT_EQ(resumed.step(laplace, step), streams.step(laplace, step));
    EXPECT_EQ(resumed.thresholds, streams.thresholds);
    resumed.threshold.commit();
    streams.threshold.commit();
  }
  expect_same_state(resumed, streams);
}

TEST(GlobalThreshold, GoesOnFromAStateWithoutShares) {
  Streams streams(0.02);
  for (uint64_t step = 0; step < 4; ++step) {
    streams.step(laplace, step);
    streams.threshold.commit();
  }
  StateArrays earlier = streams.threshold.save();
  std::erase_if(earlier, [](const StateArray& array) { return array.name.starts_with("shares"); });
  ASSERT_EQ(earlier.size(), 2u);
  Streams resumed(0.02);
  resumed.residual = streams.residual;
  ASSERT_TRUE(resumed.threshold.load(earlier));
  const size_t kept = resumed.step(laplace, 4), usual = streams.step(laplace, 4);
  EXPECT_NEAR(static_cast<double>(kept), static_cast<double>(usual), 0.2 * usual);
}

// In one step a small stream has about a tenth of a value above the threshold.
TEST(GlobalThreshold, ManySmallStreamsStayNearTheTarget) {
  constexpr size_t kStreams = 2000, kValues = 10;
  GlobalThreshold threshold;
  threshold.aim(kStreams * kValues / 100);
  for (uint64_t step = 0; step < 12; ++step) {
    const std::vector<float> values = draw(laplace, step, kStreams * kValues);
    size_t kept = 0;
    for (size_t s = 0; s < kStreams; ++s) {
      const std::span<const float> part = std::span(values).subspan(s * kValues, kValues);
      const auto quota =
          threshold.quota_for(part, s % 10 == 0 ? 1 : 0, {.seed = 7, .step = step}, s);
      size_t now = 0;
      if (quota) {
        for (const float value : part) now += std::abs(value) > quota->threshold ? 1 : 0;
      }
      threshold.sent(now);
      kept += now;
    }
    threshold.commit();
    if (step > 0) {
      EXPECT_NEAR(static_cast<double>(kept), 200, 50) << "step " << step;
    }
  }
}

// With a target of a few values chance alone makes twice as many, or none.
TEST(GlobalThreshold, AFewValuesAreKeptOnAverage) {
  for (const size_t target : {1, 2, 5}) {
    GlobalThreshold threshold;
    threshold.aim(target);
    size_t kept = 0;
    constexpr uint64_t kSteps = 400;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const std::vector<float> values = draw(laplace, step, 1000);
      const auto quota = threshold.quota_for(values, target, {.seed = 7, .step = step}, 0);
      size_t now = 0;
      if (quota) {
        for (const float value : values) now += std::abs(value) > quota->threshold ? 1 : 0;
        now = std::min(now, quota->most);
      }
      threshold.sent(now);
      kept += now;
      threshold.commit();
    }
    EXPECT_NEAR(over(kept, kSteps * target), 1, 0.25) << target;
  }
}

// At such densities not even all values are twice the target.
TEST(GlobalThreshold, SeesAJumpAtAHighDensity) {
  for (const double density : {0.5, 0.7}) {
    Streams streams(density);
    for (uint64_t step = 0; step < 12; ++step) {
      std::fill(streams.residual.begin(), streams.residual.end(), 0.0f);
      const double ratio =
          over(streams.step(normal, step, step < 10 ? 1.0f : 100.0f), streams.target());
      streams.threshold.commit();
      if (step == 11) {
        EXPECT_NEAR(ratio, 1, 0.1) << density;
      }
    }
  }
}

// The others make up for it, once its share is forgotten.
TEST(GlobalThreshold, GoesOnWithoutAStream) {
  GlobalThreshold threshold;
  threshold.aim(2000);
  for (uint64_t step = 0; step < 30; ++step) {
    size_t kept = 0;
    for (size_t s = 0; s < 2; ++s) {
      if (s == 0 && step >= 10) continue;
      const std::vector<float> values = draw(laplace, 2 * step + s, kCount);
      const auto quota = threshold.quota_for(values, 1000, {.seed = 7, .step = step}, s);
      size_t now = quota ? 0 : 1000;
      if (quota) {
        for (const float value : values) now += std::abs(value) > quota->threshold ? 1 : 0;
      }
      threshold.sent(now);
      kept += now;
    }
    threshold.commit();
    if (step > 2 && step < 10) {
      EXPECT_NEAR(static_cast<double>(kept), 2000, 300) << step;
    }
    if (step >= 10) {
      EXPECT_LE(kept, 2300u) << step;
    }
    if (step >= 25) {
      EXPECT_NEAR(static_cast<double>(kept), 2000, 300) << step;
    }
  }
}

// The correction stays between 1/4 and 4, and begins anew where the scale is another one.
TEST(GlobalThreshold, TheCorrectionHasEnds) {
  GlobalThreshold threshold;
  threshold.aim(1000);
  const auto values = draw(laplace, 0, kCount);
  threshold.quota_for(values, 1000, {}, 0);
  threshold.commit();
  const StateArrays learnt = threshold.save();
  const auto correction_after = [&](double before, float scale) {
    StateArrays arrays = learnt;
    for (StateArray& array : arrays)
      if (array.name == "correction")
        array = make_state("correction", std::span(&before, 1), OnResize::kCopy);
    threshold.load(arrays).or_throw();
    std::vector<float> scaled = values;
    for (float& value : scaled) value *= scale;
    threshold.quota_for(scaled, 1000, {}, 0);
    threshold.commit();
    double correction = 0;
    copy_state(threshold.save(), "correction", std::span(&correction, 1)).or_throw();
    return correction;
  };
  // Of Laplace's law 3,900 values exceed 2.3 scales, and 700 exceed 4; 260 exceed 5, and 1,400
  // exceed 3.4.
  EXPECT_EQ(correction_after(3.9, 2.3f / 4), 4);
  EXPECT_EQ(correction_after(0.255, 5 / 3.4f), 0.25);
  EXPECT_EQ(correction_after(3.9, 100), 1);
}

TEST(GlobalThreshold, RefusesAStateThatIsNone) {
  GlobalThreshold threshold;
  EXPECT_FALSE(threshold.load({}));
  std::vector<float> bins(MagnitudeSketch::kBins);
  std::vector<double> shares = {0, 0.25, 0.75};
  int64_t shares_target = 500;
  const auto load = [&](double correction) {
    return threshold.load(
        {make_state("magnitudes", bins, OnResize::kCopy),
         make_state("correction", std::span(&correction, 1), OnResize::kCopy),
         make_state("shares", shares, OnResize::kCopy),
         make_state("shares_target", std::span(&shares_target, 1), OnResize::kCopy)});
  };
  EXPECT_TRUE(load(1));
  for (const double bad : {0.0, -1.0, 100.0, double{NAN}})
    EXPECT_EQ(load(bad).code(), ErrorCode::kMismatch) << bad;
  for (const double bad : {-0.1, 1.1, double{NAN}}) {
    shares[1] = bad;
    EXPECT_EQ(load(1).code(), ErrorCode::kMismatch) << bad;
  }
  shares[1] = 0.25;
  shares_target = -1;
  EXPECT_EQ(load(1).code(), ErrorCode::kMismatch);
  shares_target = 500;
  EXPECT_TRUE(load(1));
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    bins[7] = bad;
    EXPECT_EQ(load(1).code(), ErrorCode::kMismatch) << bad;
  }
}

TEST(GlobalThreshold, WithoutATargetThereIsNone) {
  GlobalThreshold threshold;
  threshold.aim(0);
  EXPECT_FALSE(threshold.quota_for(draw(laplace, 0, 100), 0, {}, 0));
  threshold.commit();
  EXPECT_FALSE(threshold.quota_for(draw(laplace, 0, 100), 0, {}, 0));
}

}  // namespace
}  // namespace thinwire::testing
