// Selection against a plain loop: every target, every border, every way to use `rest`.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using ::testing::ElementsAreArray;

std::vector<float> normals(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = 2}, i);
  return values;
}

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> made;
  for (const float value : values) made.push_back(std::bit_cast<uint32_t>(value));
  return made;
}

struct Found {
  std::vector<uint32_t> positions;
  std::vector<float> kept;
  std::vector<float> rest;
};

enum class Mode { kAbove, kAtLeast, kPositive, kNegative };
constexpr Mode kModes[] = {Mode::kAbove, Mode::kAtLeast, Mode::kPositive, Mode::kNegative};

bool passes(float value, float threshold, Mode mode) {
  const float magnitude = std::abs(value);
  if (mode == Mode::kAtLeast) return magnitude >= threshold;
  if (mode == Mode::kPositive && std::signbit(value)) return false;
  if (mode == Mode::kNegative && !std::signbit(value)) return false;
  return magnitude > threshold;
}

Found oracle(std::span<const float> values, float threshold, Mode mode) {
  Found found{.positions = {}, .kept = {}, .rest = {values.begin(), values.end()}};
  for (size_t i = 0; i < values.size(); ++i) {
    if (!passes(values[i], threshold, mode)) continue;
    found.positions.push_back(static_cast<uint32_t>(i));
    found.kept.push_back(values[i]);
    found.rest[i] = 0.0f;
  }
  return found;
}

enum class RestUse { kNone, kSame, kOther };

// Selects through buffers of `room` entries, as often as it takes.
Found select_in_pieces(std::vector<float> values, float threshold, Mode mode, size_t room,
                       RestUse use) {
  constexpr uint32_t kGuard = 0xdeadbeef;
  Found found;
  std::vector<float> other(values.size(), -77.0f);
  const std::span<float> rest = use == RestUse::kNone   ? std::span<float>()
                                : use == RestUse::kSame ? std::span<float>(values)
                                                        : std::span<float>(other);
  std::vector<uint32_t> positions(room + 1, kGuard);
  std::vector<float> kept(room + 1, -99.0f);
  size_t next = 0;
  do {
    const auto at = std::span(positions).first(room);
    const auto to = std::span(kept).first(room);
    const Selection got =
        mode == Mode::kAbove ? select_above(values, next, threshold, at, to, rest)
        : mode == Mode::kAtLeast
            ? select_at_least(values, next, threshold, at, to, rest)
            : select_side(values, next, threshold,
                          mode == Mode::kPositive ? Side::kPositive : Side::kNegative, at, to,
                          rest);
    EXPECT_EQ(positions[room], kGuard);
    EXPECT_EQ(kept[room], -99.0f);
    EXPECT_TRUE(got.kept == room || got.next == values.size());
    EXPECT_TRUE(got.next > next || next == values.size());
    found.positions.insert(found.positions.end(), positions.begin(), positions.begin() + got.kept);
    found.kept.insert(found.kept.end(), kept.begin(), kept.begin() + got.kept);
    if (use == RestUse::kOther && got.next < values.size()) {
      EXPECT_EQ(other[got.next], -77.0f);
    }
    next = got.next;
  } while (next < values.size());
  found.rest.assign(rest.begin(), rest.end());
  return found;
}

void expect_as_oracle(const std::vector<float>& values, float threshold, Mode mode) {
  SCOPED_TRACE(::testing::Message() << values.size() << " values, threshold " << threshold
                                    << ", mode " << static_cast<int>(mode));
  const Found want = oracle(values, threshold, mode);
  if (mode == Mode::kAbove) {
    EXPECT_EQ(count_above(values, threshold), want.positions.size());
  }
  for (const size_t room : {size_t{1}, size_t{63}, size_t{100}, values.size() + 64}) {
    for (const RestUse use : {RestUse::kNone, RestUse::kSame, RestUse::kOther}) {
      const Found got = select_in_pieces(values, threshold, mode, room, use);
      EXPECT_THAT(got.positions, ElementsAreArray(want.positions));
      EXPECT_THAT(bits(got.kept), ElementsAreArray(bits(want.kept)));
      if (use != RestUse::kNone) {
        EXPECT_THAT(bits(got.rest), ElementsAreArray(bits(want.rest)));
      }
    }
  }
}

TEST(Select, FindsWhatALoopFindsOnEveryTarget) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const size_t count : {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 4095, 4096, 4097, 8300}) {
      const auto values = normals(count);
      // Densities 1, 0.3, 0.01 and 0; the third value's own magnitude once, for the two
      // comparisons.
      const float own = count > 2 ? std::abs(values[2]) : 1.0f;
      for (const float threshold : {0.0f, 1.0f, 2.6f, 9.0f, own}) {
        for (const Mode mode : kModes) expect_as_oracle(values, threshold, mode);
      }
    }
  });
}

TEST(Select, TakesBordersOfTheFloatFormat) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kHuge = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values;
  for (int i = 0; i < 20; ++i)
    for (const float value : {0.0f, -0.0f, kTiny, -kTiny, 2 * kTiny, 1.0f, -kHuge, kInf})
      values.push_back(value);
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const float threshold : {0.0f, -0.0f, kTiny, 2 * kTiny, 1.0f, kHuge, kInf}) {
      for (const Mode mode : kModes) expect_as_oracle(values, threshold, mode);
    }
  });
}

TEST(Select, NanPassesEveryThreshold) {
  const std::vector<float> values = {1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f};
  EXPECT_EQ(count_above(values, std::numeric_limits<float>::infinity()), 1u);
  EXPECT_EQ(count_above(values, 1.5f), 2u);
}

TEST(Select, LooksAtNothingWithoutRoom) {
  std::vector<float> values = {1.0f, 2.0f};
  const Selection got = select_above(values, 0, 0.5f, {}, {}, values);
  EXPECT_EQ(got.kept, 0u);
  EXPECT_EQ(got.next, 0u);
  EXPECT_EQ(values[0], 1.0f);
}

TEST(Select, PositionsAlone) {
  const auto values = normals(1000);
  std::vector<uint32_t> positions(1000);
  const Selection got = select_above(values, 0, 1.0f, positions, {});
  positions.resize(got.kept);
  EXPECT_THAT(positions, ElementsAreArray(oracle(values, 1.0f, Mode::kAbove).positions));
}

TEST(Select, CountsBeyondOneRoundOfLaneCounters) {
  const std::vector<float> values((size_t{1} << 21) + 77, 1.0f);
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    EXPECT_EQ(count_above(values, 0.5f), values.size());
    EXPECT_EQ(count_above(values, 1.0f), 0u);
  });
}

}  // namespace
}  // namespace thinwire::kernel
