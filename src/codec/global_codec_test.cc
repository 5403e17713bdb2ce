// Encoders that are given a threshold: what they keep, what they leave, and their bounds.
// SPDX-License-Identifier: Apache-2.0
#include "codec/global_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "codec/sparse_payload.h"
#include "codec/testing/sparsifier_testing.h"

namespace thinwire::testing {
namespace {

constexpr size_t kCount = 3000;

StreamSpec stream_of(size_t count) { return single_tensor({.name = "w", .shape = {count}}); }

std::shared_ptr<const Codec> codec_of(const std::string& spec) {
  return std::move(make_codec(spec).value().codec);
}

std::vector<std::string> offering() {
  std::vector<std::string> names;
  for (const CodecEntry* entry : list_codecs())
    if (entry->info.global_threshold) names.emplace_back(entry->info.name);
  return names;
}

struct Outcome {
  Encoded encoded;
  std::vector<float> rest;
  std::vector<float> decoded;
  std::vector<std::byte> payload;
};

Outcome send(const Codec& codec, const std::vector<float>& values, std::optional<Quota> quota,
             bool in_place = false) {
  const StreamSpec stream = stream_of(values.size());
  Outcome outcome{.encoded = {},
                  .rest = in_place ? values : std::vector<float>(values.size(), 7.0f),
                  .decoded = std::vector<float>(values.size()),
                  .payload = std::vector<std::byte>(codec.max_encoded_size(stream))};
  const auto& signal = in_place ? outcome.rest : values;
  outcome.encoded = codec.make_encoder(stream)->encode({.values = signal}, {.quota = quota},
                                                       outcome.payload, outcome.rest);
  EXPECT_LE(outcome.encoded.size, outcome.payload.size());
  outcome.payload.resize(outcome.encoded.size);
  codec.make_decoder(stream)->decode_add(outcome.payload, 1.0f, outcome.decoded).or_throw();
  return outcome;
}

TEST(GlobalCodec, IsOfferedByTheCodecsThatSelectByAThreshold) {
  const std::vector<std::string> names = offering();
  for (const std::string name : {"topk", "sidco", "dgc", "threshold", "gaussiank", "redsync"})
    EXPECT_TRUE(std::count(names.begin(), names.end(), name)) << name;
  for (const std::string spec :
       {"int8", "fp32", "randomk", "adacomp", "topk:block=64", "redsync:quantized=true"}) {
    const auto codec = codec_of(spec);
    EXPECT_EQ(with_global_threshold(codec), codec) << spec;
  }
}

TEST(GlobalCodec, SendsWhatExceedsTheGivenThresholdAndLeavesTheRest) {
  const auto values = draw(student3, 0, kCount);
  for (const std::string& name : offering())
    for (const bool in_place : {false, true})
      for (const float threshold : {0.0f, 0.5f, 3.0f, 1e30f}) {
        SCOPED_TRACE(name + " above " + std::to_string(threshold));
        const Outcome got = send(*with_global_threshold(codec_of(name)), values,
                                 Quota{.threshold = threshold, .most = kCount}, in_place);
        size_t above = 0;
        for (size_t i = 0; i < kCount; ++i) {
          const bool sent = std::abs(values[i]) > threshold;
          above += sent;
          ASSERT_EQ(got.decoded[i], sent ? values[i] : 0.0f) << i;
          ASSERT_EQ(got.rest[i], sent ? 0.0f : values[i]) << i;
        }
        EXPECT_EQ(got.encoded.kept, above);
      }
}

TEST(GlobalCodec, SendsTheLargestOfTooMany) {
  const auto values = draw(normal, 0, kCount);
  const auto codec = with_global_threshold(codec_of("topk"));
  for (const bool in_place : {false, true})
    for (const size_t most : {0, 1, 17}) {
      const Outcome got = send(*codec, values, Quota{.threshold = 0, .most = most}, in_place);
      EXPECT_EQ(got.encoded.kept, most);
      float least = 1e30f, left = 0;
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(got.decoded[i] + got.rest[i], values[i]);
        if (got.decoded[i] != 0) least = std::min(least, std::abs(got.decoded[i]));
        left = std::max(left, std::abs(got.rest[i]));
      }
      EXPECT_GE(least, left);
    }
}

TEST(GlobalCodec, SendsNothingAfterAStepThatSentSomething) {
  const auto values = draw(normal, 0, kCount);
  const auto codec = with_global_threshold(codec_of("topk"));
  const auto encoder = codec->make_encoder(stream_of(kCount));
  std::vector<std::byte> out(codec->max_encoded_size(stream_of(kCount)));
  std::vector<float> rest(kCount);
  for (const size_t most : {17, 0})
    EXPECT_EQ(encoder->encode({.values = values}, {.quota = Quota{.most = most}}, out, rest).kept,
              most);
  EXPECT_EQ(rest, values);
}

// A stream may be all above the threshold: receivers have room for that, in every format.
TEST(GlobalCodec, HasRoomForEverything) {
  const auto values = draw(normal, 0, kCount);
  for (const std::string format : {"fp32", "fp16", "bf16", "int8", "sign"}) {
    const auto codec = with_global_threshold(codec_of("topk:density=0.001,values=" + format));
    const Outcome got = send(*codec, values, Quota{.threshold = 0, .most = kCount});
    EXPECT_EQ(got.encoded.kept, kCount) << format;
    EXPECT_EQ(codec->max_kept(stream_of(kCount)), kCount);
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(got.decoded[i] + got.rest[i], values[i], 1e-6) << format;
  }
}

TEST(GlobalCodec, WithoutAThresholdIsTheCodecItself) {
  const auto values = draw(student3, 0, kCount);
  for (const std::string& name : offering()) {
    const auto own = codec_of(name);
    const auto codec = with_global_threshold(own);
    const Outcome got = send(*codec, values, std::nullopt);
    const Outcome expected = send(*own, values, std::nullopt);
    EXPECT_EQ(got.payload, expected.payload) << name;
    EXPECT_EQ(got.rest, expected.rest) << name;
    EXPECT_EQ(codec->info().name, name);
    EXPECT_EQ(codec->target(stream_of(kCount)), expected.encoded.target) << name;
  }
}

// What the codec itself remembers goes on beside steps with a given threshold.
TEST(GlobalCodec, KeepsTheStateOfTheCodec) {
  const StreamSpec stream = stream_of(kCount);
  const auto bytes_of = [&](Encoder& encoder, uint64_t step, std::optional<Quota> quota) {
    std::vector<std::byte> out(max_sparse_size(kCount, kCount, ValueFormat::kFp32));
    std::vector<float> rest(kCount);
    out.resize(
        encoder.encode({.values = draw(laplace, step, kCount)}, {.quota = quota}, out, rest).size);
    return out;
  };
  for (const std::string& name : offering()) {
    const auto own = codec_of(name);
    const auto codec = with_global_threshold(own);
    const auto expected = own->make_encoder(stream), got = codec->make_encoder(stream);
    for (uint64_t step = 0; step < 12; ++step) {
      for (Encoder* const encoder : {expected.get(), got.get()}) {
        bytes_of(*encoder, step, std::nullopt);
        step % 3 == 2 ? encoder->rollback() : encoder->commit();
      }
      bytes_of(*got, step, Quota{.threshold = 1, .most = kCount});
      got->commit();
    }
    const auto resumed = codec->make_encoder(stream);
    ASSERT_TRUE(resumed->load(got->save())) << name;
    const auto next = bytes_of(*expected, 12, std::nullopt);
    EXPECT_EQ(bytes_of(*got, 12, std::nullopt), next) << name;
    EXPECT_EQ(bytes_of(*resumed, 12, std::nullopt), next) << name;
  }
}

}  // namespace
}  // namespace thinwire::testing
