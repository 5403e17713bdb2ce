// topk: how many values it keeps, what it leaves, and which options it takes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StreamSpec stream_of(size_t count) { return single_tensor({.name = "t", .shape = {count}}); }

struct Outcome {
  Encoded encoded;
  std::vector<float> rest;
  std::vector<float> decoded;
};

Outcome send(const std::string& spec, const std::vector<float>& values) {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = stream_of(values.size());
  std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
  Outcome outcome{.encoded = {},
                  .rest = std::vector<float>(values.size(), 7.0f),
                  .decoded = std::vector<float>(values.size())};
  outcome.encoded = named.codec->make_encoder(stream)->encode(
      {.values = values, .fresh = {}, .moments = {}}, {}, payload, outcome.rest);
  payload.resize(outcome.encoded.size);
  named.codec->make_decoder(stream)->decode_add(payload, 1.0f, outcome.decoded).or_throw();
  return outcome;
}

TEST(Topk, SendsTheLargestAndLeavesTheRest) {
  const Outcome got = send("topk:density=0.4", {0.5f, -3.0f, 0.0f, 2.0f, -0.25f});
  EXPECT_THAT(got.decoded, ElementsAre(0.0f, -3.0f, 0.0f, 2.0f, 0.0f));
  EXPECT_THAT(got.rest, ElementsAre(0.5f, 0.0f, 0.0f, 0.0f, -0.25f));
  EXPECT_EQ(got.encoded.kept, 2u);
  EXPECT_EQ(got.encoded.target, 2u);
}

TEST(Topk, LeavesWhatSixteenBitsLose) {
  const Outcome got = send("topk:density=0.5,values=bf16", {1.0f, 257.0f, -1e-3f, 0.0f});
  EXPECT_THAT(got.decoded, ElementsAre(1.0f, 256.0f, 0.0f, 0.0f));
  EXPECT_THAT(got.rest, ElementsAre(0.0f, 1.0f, -1e-3f, 0.0f));
}

TEST(Topk, KeepsTheRoundedNumberButAtLeastOne) {
  const auto kept = [](const std::string& spec, size_t count) {
    const Outcome got = send(spec, std::vector<float>(count, 1.0f));
    EXPECT_EQ(got.encoded.kept, got.encoded.target);
    return got.encoded.kept;
  };
  EXPECT_EQ(kept("topk", 0), 0u);
  EXPECT_EQ(kept("topk", 1), 1u);
  EXPECT_EQ(kept("topk", 149), 1u);
  EXPECT_EQ(kept("topk", 150), 2u);
  EXPECT_EQ(kept("topk", 10'000), 100u);
  EXPECT_EQ(kept("topk:density=0.001", 300'000), 300u);
  EXPECT_EQ(kept("topk:density=1", 1000), 1000u);
}

TEST(Topk, FewerThanKWhenFewerAreNotZero) {
  std::vector<float> values(1000, 0.0f);
  EXPECT_EQ(send("topk", values).encoded.kept, 0u);
  values[500] = 1e-40f;
  const Outcome got = send("topk", values);
  EXPECT_EQ(got.encoded.kept, 1u);
  EXPECT_EQ(got.encoded.target, 10u);
  EXPECT_EQ(got.decoded, values);
}

TEST(Topk, BlocksKeepTheirOwnLargest) {
  const Outcome got =
      send("topk:density=0.5,block=4", {8, -9, 7, 6, 0.1f, 0.3f, -0.2f, 0.0f, 5.0f});
  EXPECT_THAT(got.decoded, ElementsAre(8, -9, 0, 0, 0, 0.3f, -0.2f, 0, 5.0f));
  EXPECT_THAT(got.rest, ElementsAre(0, 0, 7, 6, 0.1f, 0, 0, 0, 0));
  EXPECT_EQ(got.encoded.kept, 5u);
  EXPECT_EQ(got.encoded.target, 5u);  // 2, 2, and at least 1 of the last
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 1}, i);
  EXPECT_EQ(send("topk:block=1000000", values).decoded, send("topk", values).decoded);
  EXPECT_EQ(send("topk:block=1", values).decoded, values);
}

TEST(Topk, CostsWhatItsDocumentSays) {
  std::vector<float> values(1'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 1}, i);
  const auto bits = [&](const std::string& spec) {
    return 8.0 * static_cast<double>(send(spec, values).encoded.size) / 1e6;
  };
  EXPECT_NEAR(bits("topk:density=0.01"), 0.401, 0.001);
  EXPECT_NEAR(bits("topk:density=0.001"), 0.0436, 0.0003);
  EXPECT_NEAR(bits("topk:density=0.01,values=fp16"), 0.241, 0.001);
}

TEST(Topk, RefusesOptionsAndStreamsItCannotServe) {
  EXPECT_THAT(make_codec("topk:density=0").status().message(), HasSubstr("density"));
  EXPECT_THAT(make_codec("topk:density=1.5").status().message(), HasSubstr("density"));
  EXPECT_THAT(make_codec("topk:values=fp8").status().message(), HasSubstr("bf16"));
  const NamedCodec named = make_codec("topk").value();
  EXPECT_THROW(named.codec->make_encoder(stream_of(size_t{1} << 32)), Error);
  EXPECT_THROW(named.codec->make_decoder(stream_of(size_t{1} << 32)), Error);
}

TEST(Topk, RefusesTheOtherValueFormat) {
  const NamedCodec half = make_codec("topk:values=fp16").value();
  const NamedCodec full = make_codec("topk").value();
  const StreamSpec stream = stream_of(100);
  const std::vector<float> values(100, 1.0f);
  std::vector<std::byte> payload(half.codec->max_encoded_size(stream));
  payload.resize(half.codec->make_encoder(stream)
                     ->encode({.values = values, .fresh = {}, .moments = {}}, {}, payload, {})
                     .size);
  std::vector<float> out(100);
  EXPECT_EQ(full.codec->make_decoder(stream)->decode_add(payload, 1.0f, out).code(),
            ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace thinwire
