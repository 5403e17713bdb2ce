// countsketch against its definition in plain loops, and what it leaves, shares and refuses.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "codec/testing/sketch_testing.h"
#include "core/bytes.h"
#include "core/random.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 1000;

// The bucket of value i in a row of m.
size_t bucket_of(uint64_t key, uint32_t row, size_t m, size_t i) {
  const RandomKey turns{.seed = key, .use = RandomUse::kCodec, .step = 2, .stream = row};
  return (i % m + (uint64_t{random_word(turns, i / m)} * m >> 32)) % m;
}

// What arrives under a key, in double.
std::vector<double> oracle(const std::vector<float>& values, uint64_t key, uint32_t rows, size_t m,
                           bool scaled) {
  const double w = rows == 1 ? 1 : rows == 3 ? 0.449 : 0.287;
  std::vector<std::vector<double>> estimates(values.size());
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<double> sums(m), members(m);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t bucket = bucket_of(key, row, m, i);
      sums[bucket] += sketch_sign(key, row, i) * values[i];
      ++members[bucket];
    }
    const auto [least, most] = std::minmax_element(members.begin(), members.end());
    EXPECT_LE(*most, *least + 1);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t bucket = bucket_of(key, row, m, i);
      const double f = scaled ? 1 : 1 / (1 + w * (members[bucket] - 1));
      estimates[i].push_back(f * sketch_sign(key, row, i) * sums[bucket]);
    }
  }
  std::vector<double> decoded;
  for (auto& all : estimates) {
    std::sort(all.begin(), all.end());
    decoded.push_back(all[all.size() / 2]);
  }
  return decoded;
}

TEST(CountSketch, IsTheSketchByItsDefinition) {
  struct Case {
    size_t count;
    const char* density;
    uint32_t rows;
    size_t buckets;
  };
  for (const auto& [count, density, rows, buckets] :
       {Case{1, "0.1", 1, 1}, Case{7, "0.1", 1, 1}, Case{1000, "0.1", 1, 100},
        Case{1003, "0.1", 3, 33}, Case{9001, "0.1", 5, 180}, Case{5000, "1", 1, 5000},
        Case{10'000, "0.7", 1, 7000}, Case{50'000, "0.0001", 5, 1}}) {
    SCOPED_TRACE(std::to_string(count) + " values, " + std::to_string(rows) + " rows");
    const auto values = draw(normal, 0, count);
    for (const bool scaled : {false, true}) {
      Sender sender("countsketch:density=" + std::string(density) +
                        ",rows=" + std::to_string(rows) + (scaled ? ",scaled=true" : ""),
                    count);
      EXPECT_EQ(sender.step(values).kept, rows * buckets);
      const auto key = ByteReader(sender.payload).get<uint64_t>();
      const auto expected = oracle(values, key, rows, buckets, scaled);
      const double close = scaled ? 1e-7 * static_cast<double>(1000 + count) : 1e-5;
      for (size_t i = 0; i < count; ++i) ASSERT_NEAR(sender.sent[i], expected[i], close) << i;
    }
  }
}

// Each row has a bucket at least, and their number is odd.
TEST(CountSketch, HasFewerRowsWhereThereAreFewSums) {
  for (const auto& [density, kept] : {std::pair{"0.001", 1u},
                                      {"0.002", 2u},
                                      {"0.003", 3u},
                                      {"0.004", 3u},
                                      {"0.005", 5u},
                                      {"0.012", 10u}}) {
    Sender sender("countsketch:rows=5,density=" + std::string(density), kCount);
    EXPECT_EQ(sender.step(draw(normal, 0, kCount)).kept, kept) << density;
  }
}

// Two values share a bucket once in m draws, or never: of the oracle, which the sketch equals
// (above).
TEST(CountSketch, ValuesMeetAsOftenAsTheAnalysisAsks) {
  constexpr size_t kBuckets = 20;
  constexpr uint64_t kKeys = 20'000;
  for (const auto& [i, j, meet] : {std::tuple{0u, 19u, false},
                                   {0u, 20u, true},
                                   {5u, 39u, true},
                                   {3u, 103u, true},
                                   {45u, 58u, false}}) {
    size_t shared = 0;
    for (uint64_t key = 0; key < kKeys; ++key)
      shared += bucket_of(key, 0, kBuckets, i) == bucket_of(key, 0, kBuckets, j);
    const double expected = meet ? kKeys / kBuckets : 0;
    EXPECT_NEAR(static_cast<double>(shared), expected, 5 * std::sqrt(expected)) << i << ", " << j;
  }
}

TEST(CountSketch, WithOneRowIsAnOrthogonalProjection) {
  const auto values = draw(laplace, 0, kCount);
  for (const std::string density : {"0.1", "0.013", "0.7", "1"}) {
    Sender sender("countsketch:density=" + density, kCount);
    sender.step(values);
    EXPECT_NEAR(energy(sender.sent) + energy(sender.residual), energy(values),
                1e-5 * energy(values));
    Sender again("countsketch:density=" + density, kCount);
    again.step(sender.sent);
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(again.sent[i], sender.sent[i], 1e-5);
  }
  Sender all("countsketch:density=1", kCount);  // no bucket has two values
  all.step(values);
  EXPECT_EQ(all.sent, values);
}

// What docs/codecs.md says of dense values.
TEST(CountSketch, LeavesWhatItsFactorsAreFor) {
  constexpr size_t kMany = 30'000;
  const auto values = draw(normal, 0, kMany);
  const auto left = [&](const std::string& options) {
    return mean_error("countsketch:density=0.1" + options, values, 20) / energy(values);
  };
  EXPECT_NEAR(left(""), 0.9, 0.005);
  EXPECT_NEAR(left(",rows=3"), 1 - 0.071, 0.005);
  EXPECT_NEAR(left(",rows=5"), 1 - 0.066, 0.005);
  EXPECT_NEAR(left(",scaled=true"), 9, 0.2);
  EXPECT_NEAR(left(",scaled=true,rows=3"), 0.449 * 29, 0.3);
  EXPECT_NEAR(left(",scaled=true,rows=5"), 0.287 * 49, 0.3);
}

// Most rows estimate a large value from a bucket without another.
TEST(CountSketch, RowsFindTheLargeValues) {
  constexpr size_t kMany = 10'000;
  std::vector<float> values(kMany);
  for (size_t i = 0; i < 20; ++i) values[487 * i + 3] = static_cast<float>(i) - 9.5f;
  const double one = mean_error("countsketch:density=0.1,scaled=true", values, 50);
  const double five = mean_error("countsketch:density=0.1,scaled=true,rows=5", values, 50);
  EXPECT_NEAR(one / energy(values), 9, 1);
  EXPECT_NEAR(five / energy(values), 0.3, 0.15);
}

TEST(CountSketch, ScaledIsUnbiasedByName) {
  EXPECT_TRUE(make_codec("countsketch:scaled=true,rows=3").value().codec->info().unbiased);
  EXPECT_FALSE(make_codec("countsketch").value().codec->info().unbiased);
  EXPECT_FALSE(make_codec("countsketch:scaled=true,values=int8").value().codec->info().unbiased);
}

TEST(CountSketch, SharesDrawsAmongRanksUnlessEachHasItsOwn) {
  expect_shared_draws("countsketch:density=0.05", kCount);
}

TEST(CountSketch, PayloadsOfRanksAddUp) { expect_sums_add_up("countsketch:density=0.1", kCount); }

TEST(CountSketch, RanksAgreeOnTheMeanAndLoseNothing) {
  for (const char* options :
       {"", ",values=bf16", ",values=int8", ",values=sign", ",rows=3", ",rows=5,values=fp16"})
    expect_agreement("countsketch:density=0.1" + std::string(options), kCount);
}

TEST(CountSketch, SendsEightBytesAndTheBuckets) {
  expect_sizes("countsketch:density=0.1");
  Sender none("countsketch:rows=3,scaled=true", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
  EXPECT_EQ(none.payload.size(), 8u);
}

TEST(CountSketch, StaysFiniteNearTheLargestFloat) {
  expect_finite_near_the_largest(
      {"countsketch:density=1", "countsketch:density=0.1,scaled=true", "countsketch:rows=3"});
}

TEST(CountSketch, SumsOfLargeValuesAreRightUpToTheBound) {
  expect_sums_up_to_the_bound(
      {"countsketch:density=0.1", "countsketch:density=0.1,scaled=true", "countsketch:rows=3"});
}

TEST(CountSketch, RefusesBadPayloads) { expect_refusals("countsketch:density=0.01", kCount); }

}  // namespace
}  // namespace thinwire::testing
