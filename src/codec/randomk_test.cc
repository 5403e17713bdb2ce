// randomk: who sends which positions, what arrives and is left, unbiasedness, hostile payloads.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 1000;

// Ones everywhere: what arrives shows the positions.
std::vector<float> positions_of(const std::string& spec, const Call& call) {
  Sender sender(spec, kCount);
  sender.call = call;
  sender.step(std::vector<float>(kCount, 1.0f));
  return sender.sent;
}

TEST(Randomk, SharedPositionsDependOnSeedStepAndPart) {
  const std::string spec = "randomk:density=0.05";
  const auto first = positions_of(spec, {.seed = 7, .step = 3, .salt = 0});
  EXPECT_EQ(positions_of(spec, {.seed = 7, .step = 3, .salt = 5}), first);
  EXPECT_NE(positions_of(spec, {.seed = 8, .step = 3}), first);
  EXPECT_NE(positions_of(spec, {.seed = 7, .step = 4}), first);
  EXPECT_NE(positions_of(spec, {.seed = 7, .step = 3, .offset = 1}), first);
}

TEST(Randomk, OtherwiseEveryRankHasItsOwn) {
  const std::string spec = "randomk:density=0.05,shared=false";
  const auto first = positions_of(spec, {.seed = 7, .step = 3, .salt = 0});
  EXPECT_EQ(positions_of(spec, {.seed = 7, .step = 3, .salt = 0}), first);
  EXPECT_NE(positions_of(spec, {.seed = 7, .step = 3, .salt = 1}), first);
  EXPECT_NE(positions_of("randomk:density=0.05", {.seed = 7, .step = 3}), first);
}

TEST(Randomk, StreamsHaveTheirOwn) {
  const NamedCodec named = make_codec("randomk").value();
  std::vector<std::byte> a(named.codec->max_encoded_size(single_tensor({"a", {kCount}}))), b = a;
  const std::vector<float> values(kCount, 1.0f);
  named.codec->make_encoder(single_tensor({"a", {kCount}}))->encode({.values = values}, {}, a, {});
  named.codec->make_encoder(single_tensor({"b", {kCount}}))->encode({.values = values}, {}, b, {});
  EXPECT_NE(a, b);
}

TEST(Randomk, SendsEightBytesAndTheValues) {
  for (const auto& [format, bytes] :
       {std::pair{"fp32", 400}, {"bf16", 200}, {"int8", 104}, {"sign", 17}}) {
    Sender sender("randomk:density=0.1,values=" + std::string(format), kCount);
    const Encoded encoded = sender.step(draw(laplace, 0, kCount));
    EXPECT_EQ(encoded.kept, 100u);
    EXPECT_EQ(encoded.target, 100u);
    EXPECT_EQ(sender.payload.size(), 8u + static_cast<size_t>(bytes));
  }
}

// Over many steps everything is sent, and what is sent and left is what there was.
TEST(Randomk, LosesNothing) {
  for (const std::string spec : {"randomk:density=0.1", "randomk:density=0.7,shared=false"}) {
    Sender sender(spec, kCount);
    std::vector<int> seen(kCount);
    for (uint64_t step = 0; step < 100; ++step) {
      sender.step(draw(laplace, step, kCount));
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(sender.sent[i] + sender.residual[i], sender.before[i]);
        ASSERT_TRUE(sender.sent[i] == 0 || sender.residual[i] == 0);
        seen[i] += sender.sent[i] != 0;
      }
    }
    EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 0) << spec;
  }
}

// The mean of n draws lies within five standard errors, |x| sqrt((d/k - 1) / n) each.
TEST(Randomk, ScaledIsUnbiased) {
  const auto values = draw(laplace, 0, kCount);
  for (const std::string spec :
       {"randomk:density=0.1,scaled=true", "randomk:density=0.3,scaled=true,shared=false"}) {
    EXPECT_TRUE(make_codec(spec).value().codec->info().unbiased);
    Sender sender(spec, kCount);
    std::vector<double> sum(kCount);
    constexpr double kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      sender.step(values, false);
      for (size_t j = 0; j < kCount; ++j) sum[j] += sender.sent[j];
    }
    const double spread = spec.find("0.3") != std::string::npos ? 7.0 / 3 : 9;
    for (size_t j = 0; j < kCount; ++j)
      ASSERT_NEAR(sum[j] / kDraws, values[j], 5 * std::abs(values[j]) * std::sqrt(spread / kDraws));
  }
  EXPECT_FALSE(make_codec("randomk").value().codec->info().unbiased);
  EXPECT_FALSE(make_codec("randomk:scaled=true,values=int8").value().codec->info().unbiased);
}

// Values at common positions may be added one by one: the mean of the payloads is the payload of
// the mean.
TEST(Randomk, SharedPayloadsAddUp) {
  const auto a = draw(laplace, 1, kCount), b = draw(laplace, 2, kCount);
  std::vector<float> sum(kCount);
  for (size_t i = 0; i < kCount; ++i) sum[i] = a[i] + b[i];
  Sender first("randomk", kCount), second("randomk", kCount), both("randomk", kCount);
  first.call.salt = 1;
  second.call.salt = 2;
  first.step(a);
  second.step(b);
  both.step(sum);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(first.sent[i] + second.sent[i], both.sent[i]);
}

TEST(Randomk, DegenerateVectorsHaveAnAnswer) {
  Sender zeros("randomk", 500);
  EXPECT_EQ(zeros.step(std::vector<float>(500)).kept, 5u);  // zeros take their places
  EXPECT_EQ(zeros.sent, std::vector<float>(500));
  Sender one("randomk", 1);
  EXPECT_EQ(one.step(std::vector{2.5f}).kept, 1u);
  EXPECT_EQ(one.sent[0], 2.5f);
  Sender none("randomk:scaled=true", 0);
  EXPECT_EQ(none.step({}).kept, 0u);
  EXPECT_EQ(none.payload.size(), 8u);

  // Scaled beyond the largest float: that one, and the remainder makes up for it.
  constexpr float kMax = std::numeric_limits<float>::max();
  Sender huge("randomk:density=0.5,scaled=true", 2);
  huge.step(std::vector{kMax, kMax});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(huge.sent[i] + huge.residual[i], kMax);
}

TEST(Randomk, RefusesBadPayloads) {
  Sender sender("randomk:density=0.01", kCount);
  sender.step(draw(laplace, 0, kCount));
  auto payload = sender.payload;
  std::vector<float> out(kCount);
  EXPECT_TRUE(sender.decoder().decode_add(payload, 1, out));
  for (size_t i = 0; i < 8; ++i) payload[i] = std::byte{0xff};  // any key is a key
  EXPECT_TRUE(sender.decoder().decode_add(payload, 1, out));
  payload.push_back({});
  EXPECT_EQ(sender.decoder().decode_add(payload, 1, out).code(), ErrorCode::kBadLength);
  payload.pop_back();
  for (size_t i = 8; i < 12; ++i) payload[i] = std::byte{0xff};  // NaN
  EXPECT_EQ(sender.decoder().decode_add(payload, 1, out).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace thinwire::testing
