// Tests of sidco around its estimator: conservation, limits, adaption, degenerate vectors.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "codec/tail_estimator.h"
#include "codec/testing/sparsifier_testing.h"
#include "core/random.h"
#include "kernel/vector_moments.h"
#include "thinwire/codec.h"

namespace thinwire::testing {
namespace {

// The stage count that would be saved; 0 when it is fixed.
int64_t stages_of(Sender& sender) {
  int64_t counts[2] = {};
  const auto state = sender.encoder().save();
  if (!state.empty()) copy_state(state, "stages", counts).or_throw();
  return counts[0];
}

const char* const kVariants[] = {"sidco",
                                 "sidco:law=exponential",
                                 "sidco:law=pareto,stages=1",
                                 "sidco:law=pareto,stages=2",
                                 "sidco:law=gamma_pareto",
                                 "sidco:law=exponential,stages=1,cap=0",
                                 "sidco:law=exponential,stages=3,density=0.001",
                                 "sidco:adapt=plain,density=0.1,cap=1"};

TEST(Sidco, SentPlusRestIsWhatThereWas) {
  for (const std::string spec : kVariants)
    for (const Law law : {laplace, student3}) {
      Sender sender(spec, 20011);
      for (uint64_t step = 0; step < 12; ++step) {
        const Encoded encoded = sender.step(draw(law, step, 20011));
        size_t sent = 0;
        for (size_t i = 0; i < sender.sent.size(); ++i) {
          // One of the two is zero, the other the value itself.
          const float value = sender.sent[i] != 0 ? sender.sent[i] : sender.residual[i];
          ASSERT_EQ(value, sender.before[i]) << spec;
          ASSERT_EQ(sender.sent[i] + sender.residual[i], sender.before[i]) << spec;
          sent += sender.sent[i] != 0;
        }
        EXPECT_EQ(sent, encoded.kept) << spec;
        EXPECT_EQ(encoded.target, spec.find("0.1") != std::string::npos     ? 2001u
                                  : spec.find("0.001") != std::string::npos ? 20u
                                                                            : 200u);
      }
    }
}

TEST(Sidco, SixteenBitValuesLeaveTheirRounding) {
  for (const std::string format : {"fp16", "bf16"}) {
    Sender sender("sidco:values=" + format, 20011);
    for (uint64_t step = 0; step < 3; ++step) {
      const auto values = draw(laplace, step, 20011);
      ASSERT_GT(sender.step(values).kept, 0u);
      size_t rounded = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(sender.residual[i], sender.before[i] - sender.sent[i]);
        rounded += sender.sent[i] != 0 && sender.residual[i] != 0;
      }
      EXPECT_GT(rounded, 0u);
    }
  }
}

// The threshold separates: every value sent is larger than every value kept back.
TEST(Sidco, SendsTheLargest) {
  for (const std::string spec : kVariants) {
    Sender sender(spec, 50000);
    sender.step(draw(student3, 0, 50000));
    EXPECT_GT(sender.least_sent(), sender.largest_left()) << spec;
  }
}

TEST(Sidco, MaskMovesWithTheExponent) {
  for (const std::string spec : kVariants) {
    Sender a(spec, 30000), b(spec, 30000);
    for (uint64_t step = 0; step < 7; ++step) {
      auto values = draw(student3, step, 30000);
      a.step(values);
      for (float& value : values) value *= 0x1p-30f;
      b.step(values);
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(b.sent[i], a.sent[i] * 0x1p-30f);
    }
  }
}

TEST(Sidco, CapKeepsTheLargestOfTooMany) {
  const auto values = draw(student3, 0, 100000);
  Sender open("sidco:law=exponential,stages=1,density=0.001,cap=0", 100000);
  const size_t all = open.step(values).kept;
  ASSERT_GT(all, 350u);
  for (const std::string stages : {"1", "2"}) {  // selected straight, and from the list
    Sender capped("sidco:law=exponential,density=0.001,cap=2,stages=" + stages, 100000);
    EXPECT_LT(capped.bound(), open.bound());
    EXPECT_EQ(capped.step(values).kept, 200u);
    std::vector<float> magnitudes;
    for (const float value : values) magnitudes.push_back(std::abs(value));
    std::nth_element(magnitudes.begin(), magnitudes.begin() + 199, magnitudes.end(),
                     std::greater<>());
    for (size_t i = 0; i < values.size(); ++i) {
      const bool largest = std::abs(values[i]) >= magnitudes[199];
      ASSERT_EQ(capped.sent[i], largest ? values[i] : 0);
      ASSERT_EQ(capped.residual[i], largest ? 0 : values[i]);
    }
  }
}

// With feedback, which reshapes the tail until it settles.
TEST(Sidco, ScanComesNearTheTargetWhateverTheLaw) {
  for (const Law law : {laplace, normal, student3})
    for (const std::string density : {"0.1", "0.01", "0.001"}) {
      Sender sender("sidco:density=" + density, 40000);
      double kept = 0, target = 0;
      for (uint64_t step = 0; step < 35; ++step) {
        const Encoded encoded = sender.step(draw(law, step, 40000));
        if (step < 10) continue;
        kept += static_cast<double>(encoded.kept);
        target += static_cast<double>(encoded.target);
      }
      EXPECT_NEAR(kept / target, 1, 0.2) << density;
    }
}

// Without feedback, as the rule's known behaviour was established: lighter tails are found, heavier
// ones leave it stuck at one stage.
TEST(Sidco, PlainRuleWalksToFourOnANormalAndSticksOnAHeavyTail) {
  Sender light("sidco:law=exponential,adapt=plain,density=0.001,cap=0", 100000);
  Sender heavy("sidco:law=exponential,adapt=plain,density=0.001,cap=0", 100000);
  for (uint64_t step = 0; step < 40; ++step) {
    EXPECT_LE(stages_of(light), 10);
    const int64_t before = stages_of(light);
    const Encoded encoded = light.step(draw(normal, step, 100000), false);
    if (step % 5 != 4) {
      EXPECT_EQ(stages_of(light), before) << step;
    }
    if (step >= 25) {
      EXPECT_EQ(before, 4);
      EXPECT_NEAR(static_cast<double>(encoded.kept) / 100, 1.07, 0.5);
    }
    EXPECT_GT(heavy.step(draw(student3, step, 100000), false).kept, 300u);
    EXPECT_EQ(stages_of(heavy), 1);
  }
}

// The plain rule sees what was estimated, not what the cap let through.
TEST(Sidco, CapDoesNotHideTheEstimateFromTheRule) {
  Sender sender("sidco:law=exponential,adapt=plain,density=0.001,cap=1", 100000);
  const double sums[] = {0};
  const int64_t counts[] = {3, 0};
  ASSERT_TRUE(sender.encoder().load({make_state("stages", counts, OnResize::kCopy),
                                     make_state("ratio_sum", sums, OnResize::kCopy)}));
  for (uint64_t step = 0; step < 5; ++step) {
    auto values = draw(laplace, step, 100000);
    for (size_t i = 0; i < values.size(); i += 5) values[i] = 100;  // alike: two thousand pass
    EXPECT_EQ(sender.step(values, false).kept, 100u);
  }
  EXPECT_EQ(stages_of(sender), 2);
}

TEST(Sidco, DegenerateVectorsHaveAnAnswer) {
  for (const std::string spec : kVariants) {
    Sender zeros(spec, 5000);
    EXPECT_EQ(zeros.step(std::vector<float>(5000)).kept, 0u) << spec;
    EXPECT_EQ(zeros.residual, std::vector<float>(5000)) << spec;

    // All alike: the target's number, exactly.
    Sender alike(spec, 5000);
    const Encoded encoded = alike.step(std::vector<float>(5000, -1.0f));
    EXPECT_EQ(encoded.kept, encoded.target) << spec;

    // Too few to fit: at least one goes out, so that nothing is stuck.
    for (const size_t count : {size_t{1}, size_t{2}, size_t{63}}) {
      Sender few(spec, count);
      EXPECT_GE(few.step(draw(normal, 0, count)).kept, 1u) << spec << " " << count;
    }
    Sender none(spec, 0);
    EXPECT_EQ(none.step({}).kept, 0u);

    // One spike among zeros.
    Sender spike(spec, 5000);
    std::vector<float> values(5000);
    values[4321] = 3;
    EXPECT_EQ(spike.step(values).kept, 1u) << spec;
    EXPECT_EQ(spike.sent, values) << spec;
  }
}

TEST(Sidco, NonFiniteValuesAreABrokenContractThatChangesNothing) {
  Sender sender("sidco", 1000);
  sender.step(draw(normal, 0, 1000));
  const auto before = sender.encoder().save();
  std::vector<float> bad(1000, 1.0f);
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> out(sender.bound());
  EXPECT_THROW(sender.encoder().encode({.values = bad}, {}, out, {}), Error);
  const auto after = sender.encoder().save();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].data, before[i].data);
}

// Ranks keep different numbers of values, some at the same positions.
TEST(Sidco, PayloadsOfSeveralRanksAddUpToTheDenseSum) {
  std::vector<float> sum(4000), want(4000);
  size_t collisions = 0;
  std::vector<int> seen(4000);
  std::vector<size_t> kept;
  for (uint64_t rank = 0; rank < 5; ++rank) {
    auto values = draw(laplace, rank, 4000);
    for (size_t i = 0; i < 50; ++i) values[i * 7] = 30.0f + static_cast<float>(i + rank);
    Sender sender("sidco:law=pareto,stages=2,density=0.05", 4000);
    kept.push_back(sender.step(values).kept);
    ASSERT_TRUE(sender.decoder().decode_add(sender.payload, 0.25f, sum));
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] += 0.25f * sender.sent[i];
      if (sender.sent[i] != 0) collisions += seen[i]++ > 0;
    }
  }
  EXPECT_GE(collisions, 200u);
  EXPECT_NE(std::adjacent_find(kept.begin(), kept.end(), std::not_equal_to<>()), kept.end());
  EXPECT_EQ(sum, want);
}

TEST(Sidco, OptionsAreChecked) {
  EXPECT_EQ(make_codec("sidco").value().codec->info().grouping, Grouping::kModel);
  for (const char* bad : {"sidco:law=cauchy", "sidco:density=0", "sidco:density=1.1",
                          "sidco:stages=11", "sidco:adapt=none", "sidco:values=fp64"})
    EXPECT_FALSE(make_codec(bad).is_ok()) << bad;
}

}  // namespace
}  // namespace thinwire::testing
