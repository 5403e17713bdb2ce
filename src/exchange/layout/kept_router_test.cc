// Tests of KeptRouter: kept values reach their regions in order, and withheld values go back.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/kept_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/random.h"

namespace thinwire {
namespace {

constexpr size_t kCount = 20000;

std::vector<float> random_values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_unit({.use = RandomUse::kTest}, i) - 0.5f;
  return values;
}

struct Kept {
  std::unique_ptr<const Decoder> decoder;
  std::vector<std::byte> payload;
  std::vector<float> rest;
};

Kept top_tenth(const std::vector<float>& values) {
  const NamedCodec named = make_codec("topk:density=0.1").value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {values.size()}});
  Kept kept{.decoder = named.codec->make_decoder(stream),
            .payload = std::vector<std::byte>(named.codec->max_encoded_size(stream)),
            .rest = std::vector<float>(values.size())};
  const auto encoder = named.codec->make_encoder(stream);
  kept.payload.resize(encoder->encode({.values = values}, {}, kept.payload, kept.rest).size);
  return kept;
}

TEST(KeptRouter, EveryKeptValueLiesInItsRegionInOrder) {
  const auto values = random_values(kCount);
  const Stripes stripes(kCount, 5);
  const Kept kept = top_tenth(values);
  KeptRouter router;
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(router.route(stripes, *kept.decoder, kept.payload));
    std::vector<float> left = values;
    size_t routed = 0;
    for (uint32_t region = 0; region < stripes.regions(); ++region) {
      const KeptPart part = router.part(region);
      routed += part.values.size();
      for (size_t i = 0; i < part.values.size(); ++i) {
        EXPECT_TRUE(i == 0 || part.offsets[i] > part.offsets[i - 1]);
        EXPECT_EQ(part.positions[i], stripes.position(region, part.offsets[i]));
        left[part.positions[i]] -= part.values[i];
      }
    }
    EXPECT_EQ(routed, kCount / 10);
    EXPECT_EQ(left, kept.rest);
  }
}

TEST(KeptRouter, AllValuesWhereThereIsNoPayload) {
  const auto values = random_values(3000);
  const Stripes stripes(values.size(), 3);
  KeptRouter router;
  router.route_all(stripes, values);
  for (uint32_t region = 0; region < stripes.regions(); ++region) {
    const KeptPart part = router.part(region);
    ASSERT_EQ(part.values.size(), stripes.size(region));
    for (uint32_t i = 0; i < part.values.size(); ++i) {
      EXPECT_EQ(part.offsets[i], i);
      EXPECT_EQ(part.values[i], values[stripes.position(region, i)]);
    }
  }
}

TEST(KeptRouter, WithholdsTheSmallestOfARegionAndOfEqualOnesTheLast) {
  const Stripes stripes(6, 1);
  KeptRouter router;
  const std::vector<float> values = {1, -3, 2, -2, 2, 0.5f};
  router.route_all(stripes, values);
  std::vector<float> rest(6);
  EXPECT_EQ(router.withhold(0, 6, rest), 0u);
  EXPECT_EQ(router.withhold(0, 3, rest), 3u);
  const KeptPart part = router.part(0);
  EXPECT_EQ(std::vector<float>(part.values.begin(), part.values.end()),
            (std::vector<float>{-3, 2, -2}));
  EXPECT_EQ(std::vector<uint32_t>(part.positions.begin(), part.positions.end()),
            (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(rest, (std::vector<float>{1, 0, 0, 0, 2, 0.5f}));
  EXPECT_EQ(router.withhold(0, 1, {}), 2u);  // nobody remembers
  EXPECT_EQ(router.part(0).values[0], -3);
}

TEST(KeptRouter, AHostilePayloadIsRefused) {
  const auto values = random_values(kCount);
  Kept kept = top_tenth(values);
  kept.payload.pop_back();
  KeptRouter router;
  EXPECT_FALSE(router.route(Stripes(kCount, 5), *kept.decoder, kept.payload));
}

}  // namespace
}  // namespace thinwire
