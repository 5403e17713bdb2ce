// srht against its definition in double, and what it leaves, shares and refuses.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/random_positions.h"
#include "codec/testing/sketch_testing.h"
#include "core/bytes.h"
#include "core/random.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 1000;

// An orthonormal transform of pieces: the double sum of the definition, or for long pieces H(2n) =
// (H H; H -H), by which the sum of n log n terms is the same.
std::vector<double> transform(const std::vector<double>& x, size_t chunk) {
  std::vector<double> to(x.size());
  for (size_t at = 0; at < x.size();) {
    const size_t size = std::bit_floor(std::min(chunk, x.size() - at));
    if (size <= 4096) {
      for (size_t u = 0; u < size; ++u)
        for (size_t i = 0; i < size; ++i)
          to[at + u] += std::popcount(u & i) % 2 == 1 ? -x[at + i] : x[at + i];
    } else {
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), size,
                  to.begin() + static_cast<std::ptrdiff_t>(at));
      for (size_t half = 1; half < size; half *= 2)
        for (size_t i = 0; i < size; ++i)
          if ((i & half) == 0) {
            double& a = to[at + i];
            double& b = to[at + i + half];
            const double sum = a + b;
            b = a - b;
            a = sum;
          }
    }
    for (size_t u = 0; u < size; ++u) to[at + u] /= std::sqrt(static_cast<double>(size));
    at += size;
  }
  return to;
}

// What arrives under a key, in double.
std::vector<double> oracle(const std::vector<float>& values, uint64_t key, size_t kept,
                           size_t chunk, double scale) {
  const auto sign = [&](size_t i) { return sketch_sign(key, 0, i); };
  std::vector<double> x(values.begin(), values.end());
  for (size_t i = 0; i < x.size(); ++i) x[i] *= sign(i);
  const auto coefficients = transform(x, chunk);
  std::vector<double> some(x.size());
  RandomPositions positions;
  for (const uint32_t at : positions.draw(key, x.size(), kept)) some[at] = scale * coefficients[at];
  auto decoded = transform(some, chunk);
  for (size_t i = 0; i < x.size(); ++i) decoded[i] *= sign(i);
  return decoded;
}

TEST(Srht, IsTheTransformByItsDefinition) {
  struct Case {
    size_t count, chunk, kept;
  };
  for (const auto& [count, chunk, kept] : {Case{1, 256, 1},
                                           {7, 256, 1},
                                           {256, 256, 26},
                                           {1000, 256, 100},
                                           {5000, 4096, 500},
                                           {100'000, 65536, 10'000}}) {
    SCOPED_TRACE(std::to_string(count) + " values");
    const auto values = draw(normal, 0, count);
    for (const bool scaled : {false, true}) {
      Sender sender(
          "srht:density=0.1,chunk=" + std::to_string(chunk) + (scaled ? ",scaled=true" : ""),
          count);
      EXPECT_EQ(sender.step(values).kept, kept);
      const auto key = ByteReader(sender.payload).get<uint64_t>();
      const double scale = scaled ? static_cast<double>(count) / static_cast<double>(kept) : 1;
      const auto expected = oracle(values, key, kept, chunk, scale);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(sender.sent[i], expected[i], 2e-6 * scale) << i;
    }
  }
}

// A projection: what is left has nothing of what was sent, and what was sent arrives whole if sent
// again.
TEST(Srht, IsAnOrthogonalProjection) {
  const auto values = draw(laplace, 0, kCount);
  for (const std::string spec : {"srht:density=0.1", "srht:density=0.7,shared=false"}) {
    Sender sender(spec, kCount);
    sender.step(values);
    EXPECT_NEAR(energy(sender.sent) + energy(sender.residual), energy(values),
                1e-5 * energy(values));
    Sender again(spec, kCount);
    again.step(sender.sent);
    for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(again.sent[i], sender.sent[i], 1e-5);
  }
}

// A spike reaches all of its piece, and the share of its energy that arrives is that of the
// coefficients.
TEST(Srht, SpreadsASpikeOverItsPiece) {
  constexpr size_t kPiece = 4096;
  std::vector<float> spike(kPiece);
  spike[1234] = 1;
  Sender sender("srht:density=0.125", kPiece);
  sender.step(spike);
  EXPECT_NEAR(sender.sent[1234], 0.125, 1e-6);
  EXPECT_NEAR(energy(sender.sent), 0.125, 1e-6);
  for (const float value : sender.sent) EXPECT_LE(std::abs(value), 0.1250001f);
}

TEST(Srht, SharesDrawsAmongRanksUnlessEachHasItsOwn) {
  expect_shared_draws("srht:density=0.05", kCount);
}

TEST(Srht, ScaledHasTheVarianceOfItsDensity) {
  EXPECT_TRUE(make_codec("srht:scaled=true").value().codec->info().unbiased);
  EXPECT_FALSE(make_codec("srht").value().codec->info().unbiased);
  EXPECT_FALSE(make_codec("srht:scaled=true,values=fp16").value().codec->info().unbiased);
  const auto values = draw(laplace, 0, kCount);
  EXPECT_NEAR(mean_error("srht:density=0.1,scaled=true", values, 300) / energy(values), 9, 0.3);
  EXPECT_NEAR(mean_error("srht:density=0.1", values, 300) / energy(values), 0.9, 0.01);
}

TEST(Srht, PayloadsOfRanksAddUp) { expect_sums_add_up("srht:density=0.1", kCount); }

TEST(Srht, RanksAgreeOnTheMeanAndLoseNothing) {
  for (const char* format : {"fp32", "bf16", "int8", "sign"})
    expect_agreement("srht:density=0.1,values=" + std::string(format), kCount);
}

TEST(Srht, SendsEightBytesAndTheCoefficients) {
  expect_sizes("srht:density=0.1");
  Sender none("srht", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
  EXPECT_EQ(none.payload.size(), 8u);
}

TEST(Srht, StaysFiniteNearTheLargestFloat) {
  expect_finite_near_the_largest({"srht:density=1", "srht:density=0.1,scaled=true"});
}

TEST(Srht, SumsOfLargeValuesAreRightUpToTheBound) {
  expect_sums_up_to_the_bound({"srht:density=0.1", "srht:density=0.1,scaled=true"});
}

TEST(Srht, RefusesBadPayloads) { expect_refusals("srht:density=0.01", kCount); }

}  // namespace
}  // namespace thinwire::testing
