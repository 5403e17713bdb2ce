// AdaComp against its definition, step after step, and against what is known of its behaviour.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using Floats = std::vector<float>;

StreamSpec stream_of(size_t count, TensorKind kind = TensorKind::kLinear) {
  return single_tensor({.name = "w", .shape = {count}, .kind = kind});
}

std::unique_ptr<const Codec> codec_with(size_t bin, const std::string& more = "") {
  return std::move(make_codec("adacomp:bin_linear=" + std::to_string(bin) + more).value().codec);
}

Floats gaussian(size_t count, uint32_t stream, uint64_t step = 0) {
  const RandomKey key{.seed = 21, .step = step, .stream = stream};
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal(key, i);
  return values;
}

Floats plus(const Floats& a, const Floats& b) {
  Floats sum(a.size());
  std::transform(a.begin(), a.end(), b.begin(), sum.begin(), std::plus<>());
  return sum;
}

Floats times(float factor, Floats values) {
  for (float& value : values) value *= factor;
  return values;
}

struct Sent {
  std::vector<std::byte> payload;
  size_t kept = 0;
  Floats quantised;  // decoded
  Floats residue;
  float scale = 0;

  size_t count() const {
    return static_cast<size_t>(
        std::count_if(quantised.begin(), quantised.end(), [](float value) { return value != 0; }));
  }
};

Sent send(const Codec& codec, const StreamSpec& stream, const Floats& g, const Floats& dw) {
  Sent sent;
  sent.payload.resize(codec.max_encoded_size(stream));
  sent.residue.resize(g.size());
  const auto encoded = codec.make_encoder(stream)->encode({.values = g, .fresh = dw}, {},
                                                          sent.payload, sent.residue);
  sent.payload.resize(encoded.size);
  sent.kept = encoded.kept;
  sent.quantised.resize(g.size());
  const auto status = codec.make_decoder(stream)->decode_add(sent.payload, 1, sent.quantised);
  EXPECT_TRUE(status.is_ok()) << status.message();
  if (sent.payload.size() >= sizeof sent.scale)
    std::memcpy(&sent.scale, sent.payload.data(), sizeof sent.scale);
  return sent;
}

// The algorithm as it is written down: Gq, elementwise.
Floats oracle(const Floats& g, const Floats& dw, size_t bin, float s) {
  const size_t bins = (g.size() + bin - 1) / bin;
  Floats gmax(bins);
  for (size_t i = 0; i < g.size(); ++i) gmax[i / bin] = std::max(gmax[i / bin], std::abs(g[i]));
  const auto scale = static_cast<float>(std::accumulate(gmax.begin(), gmax.end(), 0.0) /
                                        static_cast<double>(bins));
  Floats quantised(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const float extra = (s - 1) * dw[i];
    const float h = g[i] + extra;
    if (gmax[i / bin] > 0 && std::abs(h) >= gmax[i / bin] && g[i] != 0)
      quantised[i] = g[i] < 0 ? -scale : scale;
  }
  return quantised;
}

// Checks 1, 2 and 9 of the method: equality with the definition, conservation, and the round trip,
// on several steps with a residue and bins of every length that matters.
TEST(AdaComp, EqualsTheDefinitionStepAfterStep) {
  for (const size_t bin : {1, 2, 50, 63, 64, 65, 500, 16383}) {
    for (const float s : {1.0f, 1.5f, 2.0f, 3.0f}) {
      const size_t count = 20011;  // the last bin is short
      const auto codec = codec_with(bin, ",scale_factor=" + std::to_string(s));
      Floats residue(count);
      for (uint64_t step = 0; step < 5; ++step) {
        const Floats dw = gaussian(count, 1, step);
        const Floats g = plus(residue, dw);
        const Sent sent = send(*codec, stream_of(count), g, dw);
        ASSERT_EQ(sent.quantised, oracle(g, dw, bin, s)) << "bin " << bin << " s " << s;
        ASSERT_EQ(sent.kept, sent.count());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(sent.residue[i], g[i] - sent.quantised[i]);
          ASSERT_TRUE(sent.quantised[i] == 0 || std::abs(sent.quantised[i]) == sent.scale);
        }
        residue = sent.residue;
      }
    }
  }
}

TEST(AdaComp, QuantisesTheSignOfGWhereHHasAnother) {
  // G = -1, dW = +3: H = 2, but what is sent is G.
  const Sent sent = send(*codec_with(2), stream_of(2), {-1, 0.5f}, {3, 0});
  EXPECT_EQ(sent.quantised, (Floats{-1, 0}));
  EXPECT_EQ(sent.residue, (Floats{0, 0.5f}));
}

TEST(AdaComp, WithoutResidueSendsAllAboveHalfTheMaximum) {
  const size_t bin = 50;
  const Floats dw = gaussian(10000, 2);
  const Sent sent = send(*codec_with(bin), stream_of(dw.size()), dw, dw);
  for (size_t begin = 0; begin < dw.size(); begin += bin) {
    float gmax = 0;
    for (size_t i = begin; i < begin + bin; ++i) gmax = std::max(gmax, std::abs(dw[i]));
    for (size_t i = begin; i < begin + bin; ++i)
      ASSERT_EQ(sent.quantised[i] != 0, std::abs(dw[i]) >= gmax / 2) << i;
  }
  // An empty `fresh` means the values.
  EXPECT_EQ(send(*codec_with(bin), stream_of(dw.size()), dw, {}).payload, sent.payload);
}

TEST(AdaComp, SendsOnePerBinWithoutTheSoftThreshold) {
  const size_t bin = 50, bins = 200;
  const Floats g = gaussian(bin * bins, 3);
  const Floats dw = gaussian(bin * bins, 4);
  EXPECT_EQ(send(*codec_with(bin, ",scale_factor=1"), stream_of(g.size()), g, dw).kept, bins);
  EXPECT_EQ(send(*codec_with(bin), stream_of(g.size()), g, Floats(g.size())).kept, bins);
}

TEST(AdaComp, ScalesExactlyWithItsInput) {
  for (const size_t bin : {50, 500}) {
    const Floats dw = gaussian(10007, 5);
    const Floats g = plus(gaussian(10007, 6), dw);
    const Sent one = send(*codec_with(bin), stream_of(g.size()), g, dw);
    const Sent four = send(*codec_with(bin), stream_of(g.size()), times(4, g), times(4, dw));
    EXPECT_EQ(four.quantised, times(4, one.quantised));
    EXPECT_EQ(four.scale, 4 * one.scale);
  }
}

TEST(AdaComp, OrderInsideABinAndOfBinsMattersNot) {
  const size_t bin = 50;
  Floats dw = gaussian(2000, 7);
  Floats g = plus(gaussian(2000, 8), dw);
  const Sent before = send(*codec_with(bin), stream_of(g.size()), g, dw);
  for (Floats* values : {&g, &dw})  // reverse every bin: all positions inside change
    for (size_t begin = 0; begin < values->size(); begin += bin)
      std::reverse(values->begin() + static_cast<ptrdiff_t>(begin),
                   values->begin() + static_cast<ptrdiff_t>(begin + bin));
  const Sent inside = send(*codec_with(bin), stream_of(g.size()), g, dw);
  EXPECT_EQ(inside.kept, before.kept);
  EXPECT_EQ(inside.scale, before.scale);
  for (Floats* values : {&g, &dw}) std::reverse(values->begin(), values->end());
  const Sent whole = send(*codec_with(bin), stream_of(g.size()), g, dw);
  EXPECT_EQ(whole.kept, before.kept);
  EXPECT_NEAR(whole.scale, before.scale, 1e-7f * before.scale);
}

// The published rates: 40x at bins of 50 and about 170x at 500, for Gaussian gradients that do not
// change their law, once the residue is in its steady state.
double sent_per_bin(size_t bin, double* rate) {
  const size_t count = 10000, steps = 200;
  const auto codec = codec_with(bin);
  Floats residue(count);
  size_t kept = 0, bytes = 0, counted = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    const Floats dw = gaussian(count, 9, step);
    const Floats g = plus(residue, dw);
    Sent sent = send(*codec, stream_of(count), g, dw);
    residue = std::move(sent.residue);
    if (step < steps - steps / 4) continue;
    kept += sent.kept;
    bytes += sent.payload.size();
    ++counted;
  }
  *rate = 4.0 * static_cast<double>(count * counted) / static_cast<double>(bytes);
  return static_cast<double>(kept * bin) / static_cast<double>(count * counted);
}

TEST(AdaComp, SendsAsManyPerBinAsPublished) {
  double rate = 0;
  EXPECT_NEAR(sent_per_bin(50, &rate), 5.0, 0.15);
  EXPECT_NEAR(rate, 40, 1.5);
  EXPECT_NEAR(sent_per_bin(500, &rate), 5.9, 0.2);
  EXPECT_NEAR(rate, 168, 6);  // 171 without the four bytes of scale
}

TEST(AdaComp, EqualLearnersAddUp) {
  const Floats dw = gaussian(1003, 10);
  const auto codec = codec_with(50);
  const Sent one = send(*codec, stream_of(dw.size()), dw, dw);
  EXPECT_EQ(send(*codec, stream_of(dw.size()), dw, dw).payload, one.payload);
  Floats sum(dw.size());
  const auto decoder = codec->make_decoder(stream_of(dw.size()));
  for (int learner = 0; learner < 4; ++learner)
    ASSERT_TRUE(decoder->decode_add(one.payload, 1, sum).is_ok());
  EXPECT_EQ(sum, times(4, one.quantised));
  // Half of one and half of another that share positions.
  Floats mean(dw.size());
  ASSERT_TRUE(decoder->decode_add(one.payload, 0.5f, mean).is_ok());
  ASSERT_TRUE(decoder->decode_add(one.payload, 0.5f, mean).is_ok());
  EXPECT_EQ(mean, one.quantised);
}

// Degenerate input.

TEST(AdaComp, ZerosCostNothingButTheScale) {
  const Sent zeros = send(*codec_with(50), stream_of(1000), Floats(1000), gaussian(1000, 11));
  EXPECT_EQ(zeros.payload.size(), 4u);  // also where the residue cancels dW
  EXPECT_EQ(zeros.kept, 0u);
  EXPECT_EQ(zeros.scale, 0);
  EXPECT_TRUE(send(*codec_with(50), stream_of(0), {}, {}).payload.empty());
}

TEST(AdaComp, ABinOfZerosSendsNothingAndCountsInTheMean) {
  Floats g(12);
  g[6] = 8;  // bins of 4: the second one
  const Sent sent = send(*codec_with(4), stream_of(12), g, g);
  EXPECT_EQ(sent.kept, 1u);
  EXPECT_EQ(sent.payload.size(), 4u + 3u);
  EXPECT_FLOAT_EQ(sent.scale, 8.0f / 3);
}

TEST(AdaComp, AShortLastBinCountsOnce) {
  const Sent sent = send(*codec_with(4), stream_of(5), {1, 1, 1, 1, 3}, Floats(5));
  EXPECT_EQ(sent.scale, 2);
  EXPECT_EQ(sent.quantised, (Floats{2, 2, 2, 2, 2}));
  const Sent alone = send(*codec_with(500), stream_of(3), {0, -7, 1}, Floats(3));
  EXPECT_EQ(alone.quantised, (Floats{0, -7, 0}));
}

TEST(AdaComp, ABinCanBeEmptyWithoutBeingZero) {
  // dW points against the residue, so |H| stays below the largest |G|.
  const Sent sent = send(*codec_with(2), stream_of(4), {4, 1, 2, 2}, {-1, 0, 0, 0});
  EXPECT_EQ(sent.quantised, (Floats{0, 0, 3, 3}));
  EXPECT_EQ(sent.residue, (Floats{4, 1, -1, -1}));
}

TEST(AdaComp, ElementsWithoutASignAreNotSent) {
  const Sent sent = send(*codec_with(3), stream_of(3), {0, -0.0f, 1}, {5, 5, 0});
  EXPECT_EQ(sent.quantised, (Floats{0, 0, 1}));
  EXPECT_EQ(sent.kept, 1u);
}

TEST(AdaComp, ConstantMagnitudesSendAllAtHalfTheSizeOfFp32OrLess) {
  for (const size_t bin : {1, 50, 64, 500}) {
    Floats g = gaussian(1003, 12);
    for (float& value : g) value = std::copysign(0.25f, value);
    const auto codec = codec_with(bin);
    const Sent sent = send(*codec, stream_of(g.size()), g, g);
    EXPECT_EQ(sent.quantised, g);
    EXPECT_EQ(sent.kept, g.size());
    EXPECT_LE(sent.payload.size(), 4 + 2 * g.size());
    EXPECT_EQ(sent.payload.size(), codec->max_encoded_size(stream_of(g.size())));
  }
}

TEST(AdaComp, AMeanTooSmallForAFloatSendsNothing) {
  Floats g(1000);
  g[3] = std::numeric_limits<float>::denorm_min();
  const Sent sent = send(*codec_with(50), stream_of(1000), g, g);
  EXPECT_EQ(sent.payload.size(), 4u);
  EXPECT_EQ(sent.kept, 0u);
  EXPECT_EQ(sent.residue, g);
}

TEST(AdaComp, TheLargestFloatsDoNotOverflow) {
  const float huge = std::numeric_limits<float>::max();
  const Sent sent = send(*codec_with(2), stream_of(4), {huge, -huge, huge, 0}, {huge, -huge, 0, 0});
  EXPECT_EQ(sent.quantised, (Floats{huge, -huge, huge, 0}));
  EXPECT_EQ(sent.residue, Floats(4));
}

TEST(AdaComp, BinsThatDoNotFitTheCodeAreRefused) {
  for (const char* spec : {"adacomp:bin_linear=16384", "adacomp:bin_convolution=16384",
                           "adacomp:bin_linear=0", "adacomp:scale_factor=0.5"}) {
    const auto result = make_codec(spec);
    ASSERT_FALSE(result.is_ok()) << spec;
    EXPECT_EQ(result.status().code(), ErrorCode::kBadOption);
  }
  const auto result = make_codec("adacomp:bin_linear=16384");
  EXPECT_NE(result.status().message().find("16383"), std::string::npos)
      << result.status().message();
}

TEST(AdaComp, EveryTensorHasItsBinsAndItsScale) {
  const StreamSpec stream{
      .name = "model",
      .tensors = {{.name = "conv", .shape = {5}, .kind = TensorKind::kConvolution},
                  {.name = "none", .shape = {0}, .kind = TensorKind::kLinear},
                  {.name = "fc", .shape = {3, 1}, .kind = TensorKind::kLinear},
                  {.name = "lstm", .shape = {2}, .kind = TensorKind::kRecurrent}}};
  const auto codec =
      std::move(make_codec("adacomp:bin_convolution=2,bin_linear=500").value().codec);
  const Floats g = {4, 1, 0, -8, 6, /* fc */ 1, -3, 2, /* lstm */ 0, 0};
  const Sent sent = send(*codec, stream, g, Floats(g.size()));
  EXPECT_EQ(sent.quantised, (Floats{6, 0, 0, -6, 6, 0, -3, 0, 0, 0}));
  EXPECT_EQ(sent.payload.size(), (4 + 3u) + (4 + 2) + 4);  // the scale of zeros stands alone
}

TEST(AdaComp, DecoderRefusesBadScalesAndLengths) {
  const Floats g = {1, 2, 3};
  const auto codec = codec_with(2);
  const auto decoder = codec->make_decoder(stream_of(3));
  const auto good = send(*codec, stream_of(3), g, Floats(3)).payload;
  Floats out(3);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decoder->decode_add(std::span(good).first(size), 1, out).is_ok()) << size;
  auto longer = good;
  longer.push_back(std::byte{0x80});
  EXPECT_EQ(decoder->decode_add(longer, 1, out).code(), ErrorCode::kBadLength);
  using Limits = std::numeric_limits<float>;
  for (const float scale : {-1.0f, -0.0f, Limits::infinity(), Limits::quiet_NaN()}) {
    auto bad = good;
    std::memcpy(bad.data(), &scale, sizeof scale);
    EXPECT_EQ(decoder->decode_add(bad, 1, out).code(), ErrorCode::kCorrupt) << scale;
  }
  auto zero = good;  // a scale of zero has no codes
  std::fill_n(zero.begin(), 4, std::byte{0});
  EXPECT_EQ(decoder->decode_add(zero, 1, out).code(), ErrorCode::kBadLength);
}

}  // namespace
}  // namespace thinwire
