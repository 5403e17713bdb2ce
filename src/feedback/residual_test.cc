// none and residual: what they send, what they keep, and that a step rolled back never happened.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/random.h"
#include "kernel/vector_moments.h"
#include "thinwire/feedback.h"

namespace thinwire {
namespace {

using testing::HasSubstr;

constexpr size_t kCount = 10007;
const StreamSpec kStream = single_tensor({.name = "w", .shape = {kCount}});

std::unique_ptr<Feedback> make(std::string_view spec) {
  return std::move(make_feedback(spec, kStream).value());
}

std::vector<float> gradient(uint64_t step) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = random_normal({.seed = 4, .step = step}, i);
  return values;
}

// What an encoder that sends the odd positions leaves.
void send_odd(std::span<float> rest) {
  for (size_t i = 1; i < rest.size(); i += 2) rest[i] = 0;
}

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> words;
  for (const float value : values) words.push_back(std::bit_cast<uint32_t>(value));
  return words;
}

void expect_moments_of(const Signal& signal) {
  const Moments want = kernel::moments(signal.values);
  ASSERT_TRUE(signal.moments.has_value());
  EXPECT_EQ(signal.moments->abs_sum, want.abs_sum);
  EXPECT_EQ(signal.moments->square_sum, want.square_sum);
  EXPECT_EQ(signal.moments->abs_max, want.abs_max);
  EXPECT_EQ(signal.moments->finite, want.finite);
}

TEST(None, SendsTheGradientAndKeepsNothing) {
  const auto none = make("none");
  const auto g = gradient(0);
  for (int step = 0; step < 2; ++step) {
    const Signal signal = none->prepare(g, {});
    EXPECT_EQ(signal.values.data(), g.data());
    EXPECT_EQ(signal.values.size(), g.size());
    expect_moments_of(signal);
    EXPECT_TRUE(none->rest().empty());
    none->commit();
  }
  EXPECT_TRUE(none->save().empty());
}

TEST(Residual, AddsWhatWasLeft) {
  const auto residual = make("residual");
  std::vector<float> left(kCount, 0.0f);
  for (uint64_t step = 0; step < 4; ++step) {
    const auto g = gradient(step);
    const Signal signal = residual->prepare(g, {.step = step});
    ASSERT_EQ(signal.values.size(), kCount);
    EXPECT_EQ(signal.fresh.data(), g.data());
    expect_moments_of(signal);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(signal.values[i], g[i] + left[i]) << i;
    EXPECT_EQ(residual->rest().data(), signal.values.data());
    send_odd(residual->rest());
    left.assign(residual->rest().begin(), residual->rest().end());
    residual->commit();
  }
}

TEST(Residual, RollbackLeavesNoTrace) {
  const auto plain = make("residual"), disturbed = make("residual");
  for (uint64_t step = 0; step < 5; ++step) {
    const auto g = gradient(step);
    auto bad = gradient(100 + step);
    bad[step * 17] = std::numeric_limits<float>::quiet_NaN();
    const Signal signal = disturbed->prepare(bad, {.step = step});
    EXPECT_FALSE(signal.moments->finite);
    std::fill(disturbed->rest().begin(), disturbed->rest().end(), 5.0f);
    disturbed->rollback();
    for (Feedback* feedback : {plain.get(), disturbed.get()}) {
      feedback->prepare(g, {.step = step});
      send_odd(feedback->rest());
      feedback->commit();
    }
    const auto a = plain->save(), b = disturbed->save();
    ASSERT_EQ(a.size(), 1u);
    ASSERT_EQ(a[0].data, b[0].data) << "step " << step;
  }
}

TEST(Residual, ComesBackBitForBit) {
  const auto residual = make("residual"), again = make("residual");
  const auto g = gradient(0);
  residual->prepare(g, {});
  send_odd(residual->rest());
  residual->commit();
  const StateArrays saved = residual->save();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].on_resize, OnResize::kOwedToMean);
  ASSERT_TRUE(again->load(saved));
  EXPECT_EQ(bits(again->prepare(g, {}).values), bits(residual->prepare(g, {}).values));
}

TEST(Residual, RefusesForeignStateAndStaysAsItWas) {
  const auto residual = make("residual");
  residual->prepare(gradient(0), {});
  residual->commit();
  const auto before = residual->save();
  const std::vector<float> shorter(kCount - 1);
  const std::vector<double> wide(kCount);
  for (const StateArrays& bad :
       {StateArrays{}, StateArrays{make_state("residual", std::span<const float>(shorter), {})},
        StateArrays{make_state("residual", std::span<const double>(wide), {})},
        StateArrays{make_state("other", std::span<const float>(gradient(1)), {})}}) {
    EXPECT_EQ(residual->load(bad).code(), ErrorCode::kMismatch);
    EXPECT_EQ(residual->save()[0].data, before[0].data);
  }
}

TEST(Residual, StartsAtZero) {
  const auto saved = make("residual")->save();
  EXPECT_TRUE(std::all_of(saved[0].data.begin(), saved[0].data.end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Feedback, ContractsAreChecked) {
  const std::vector<float> shorter(kCount - 1);
  EXPECT_THROW(make("none")->prepare(shorter, {}), Error);
  EXPECT_THROW(make("residual")->prepare(shorter, {}), Error);
  EXPECT_THROW(make("residual")->commit(), Error);
}

TEST(Feedback, UnknownNamesAreRefusedWithTheKnownOnes) {
  const auto unknown = make_feedback("residuel", kStream);
  EXPECT_EQ(unknown.status().code(), ErrorCode::kUnknownName);
  EXPECT_THAT(unknown.status().message(), HasSubstr("none, residual"));
  EXPECT_FALSE(make_feedback("residual:beta=0.9", kStream).is_ok());
}

TEST(Feedback, EmptyStreamsAreFine) {
  const StreamSpec empty = single_tensor({.name = "w", .shape = {0}});
  for (const FeedbackEntry* entry : list_feedbacks()) {
    auto made = make_feedback(entry->name, empty);
    ASSERT_TRUE(made.is_ok()) << entry->name;
    EXPECT_TRUE(made.value()->prepare({}, {}).values.empty());
    made.value()->commit();
  }
}

}  // namespace
}  // namespace thinwire
