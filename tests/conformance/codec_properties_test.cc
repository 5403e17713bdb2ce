// What the theory of error feedback asks of codecs: limits, contraction, unbiasedness.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "core/random.h"
#include "core/testing/test_name.h"
#include "support/samples.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using samples::Data;

// One encode and decode with an encoder of its own.
struct Outcome {
  Outcome(const Codec& codec, std::span<const float> values, const Call& call = {})
      : rest(values.size()), decoded(values.size()) {
    const StreamSpec stream = samples::one_tensor(values.size());
    std::vector<std::byte> payload(codec.max_encoded_size(stream));
    encoded = codec.make_encoder(stream)->encode({.values = values}, call, payload, rest);
    payload.resize(encoded.size);
    codec.make_decoder(stream)->decode_add(payload, 1, decoded).or_throw();
  }

  Encoded encoded;
  std::vector<float> rest;
  std::vector<float> decoded;
};

double energy(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

bool has_option(const CodecEntry& entry, std::string_view name) {
  return std::any_of(entry.options.begin(), entry.options.end(),
                     [&](const OptionInfo& option) { return option.name == name; });
}

// All variants of the codecs that have a density: the sparsifiers with a target.
std::vector<std::string> sparsifiers() {
  std::vector<std::string> all;
  for (const CodecEntry* entry : list_codecs())
    if (has_option(*entry, "density"))
      for (const std::string& variant : samples::codec_variants(*entry)) all.push_back(variant);
  return all;
}

class SparsifierProperties : public ::testing::TestWithParam<std::string> {
 protected:
  const NamedCodec named_ = make_codec(GetParam()).value();
  const Codec& codec_ = *named_.codec;

  // Whether values arrive as they are. Medians of several estimates do not, and take less.
  bool exact() const {
    const auto says = [&](std::string_view option) {
      return named_.canonical.find(option) != std::string::npos;
    };
    return says("values=fp32") && !says("quantized=true") && (says("rows=1") || !says("rows="));
  }
};

// Asked for everything, a sparsifier is the identity; the coefficients of a transform are it to
// rounding, and have bounds.
TEST_P(SparsifierProperties, EverythingAtDensityOne) {
  if (!exact() || GetParam().find("density=") != std::string::npos) GTEST_SKIP();
  const bool bare = GetParam().find(':') == std::string::npos;
  const NamedCodec full = make_codec(GetParam() + (bare ? ":" : ",") + "density=1").value();
  for (const size_t count : {0, 1, 2, 100, 5000})
    for (const Data data : samples::kAllData) {
      SCOPED_TRACE(full.canonical + ", " + std::string(samples::to_string(data)));
      const auto values = samples::make_values(data, count);
      const Outcome got(*full.codec, values);
      if (!full.codec->info().sparse) {
        if (data == Data::kHuge || data == Data::kDenormal) continue;
        EXPECT_LE(energy(got.rest), 1e-11 * energy(values));
        continue;
      }
      EXPECT_EQ(got.decoded, values);
      EXPECT_EQ(got.rest, std::vector<float>(count));
    }
}

// A contraction: with feedback the residual stays bounded.
TEST_P(SparsifierProperties, LeavesNoMoreThanThereWas) {
  if (codec_.info().unbiased) GTEST_SKIP() << "for use without feedback";
  for (const size_t count : {1, 2, 100, 5000})
    for (const Data data : samples::kAllData) {
      SCOPED_TRACE(std::string(samples::to_string(data)) + ", " + std::to_string(count));
      const auto values = samples::make_values(data, count);
      const Outcome got(codec_, values);
      EXPECT_LE(energy(got.rest), energy(values) * (1 + 1e-6));
      EXPECT_LE(got.encoded.kept, count);
    }
}

// k of d values take at least k/d of the energy with them: on average over draws, if there are any.
TEST_P(SparsifierProperties, KeepsItsShareOfTheEnergy) {
  if (codec_.info().unbiased || !exact()) GTEST_SKIP();
  constexpr size_t kCount = 1000;
  constexpr int kDraws = 300;
  for (const Data data : {Data::kNormal, Data::kHeavyTail}) {
    const auto values = samples::make_values(data, kCount);
    double sum = 0, square_sum = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const Outcome got(codec_, values, {.step = static_cast<uint64_t>(draw)});
      const double share = static_cast<double>(got.encoded.kept) / kCount;
      const double excess = 1 - energy(got.rest) / energy(values) - share;
      sum += excess;
      square_sum += excess * excess;
    }
    const double mean = sum / kDraws;
    const double deviation = std::sqrt(std::max(square_sum / kDraws - mean * mean, 0.0));
    EXPECT_GE(mean, -4 * deviation / std::sqrt(kDraws) - 1e-6) << samples::to_string(data);
  }
}

// Nothing waits for ever: of a gradient that stays the same, every value is sent in the end, and
// what was sent is what was given but for a residual.
TEST_P(SparsifierProperties, FeedbackSendsEverythingInTheEnd) {
  if (codec_.info().unbiased) GTEST_SKIP();
  constexpr size_t kCount = 300;
  const StreamSpec stream = samples::one_tensor(kCount);
  const auto encoder = codec_.make_encoder(stream);
  auto gradient = samples::make_values(Data::kNormal, kCount);
  for (float& value : gradient) value = std::copysign(std::max(std::abs(value), 0.1f), value);
  std::vector<float> values(kCount);
  std::vector<std::byte> payload(codec_.max_encoded_size(stream));
  std::vector<bool> sent(kCount);
  for (uint64_t step = 0; step < 20'000; ++step) {
    for (size_t i = 0; i < kCount; ++i) values[i] += gradient[i];
    const auto before = values;
    encoder->encode({.values = values}, {.step = step}, payload, values);
    encoder->commit();
    for (size_t i = 0; i < kCount; ++i) sent[i] = sent[i] || values[i] != before[i];
    if (step % 100 == 0 && std::find(sent.begin(), sent.end(), false) == sent.end()) return;
  }
  ADD_FAILURE() << std::count(sent.begin(), sent.end(), false) << " values were never sent";
}

INSTANTIATE_TEST_SUITE_P(Registry, SparsifierProperties, ::testing::ValuesIn(sparsifiers()),
                         [](const auto& row) {
                           return std::to_string(row.index) + "_" + test_name(row.param);
                         });

// The same of all codecs that go with a memory, whatever they do: with feedback their residual
// stays bounded. Signs alone, for votes, are no approximation; one bit between the ends of a range
// is a bad one, and so is one scale for a hundred times as many values as it fits (docs/codecs.md
// says so). Scales that are denormal themselves round by as much as the values.
TEST(BiasedCodecs, LeaveNoMoreThanThereWas) {
  for (const std::string& variant : samples::codec_variants()) {
    const NamedCodec named = make_codec(variant).value();
    const CodecInfo& info = named.codec->info();
    if (info.unbiased || info.vote || info.feedback == "none" || variant == "uniform:bits=1" ||
        variant.starts_with("adacomp:scale_factor=100"))
      continue;
    for (const size_t count : {1, 2, 100, 5000})
      for (const Data data : samples::kAllData) {
        if (data == Data::kDenormal) continue;
        const auto values = samples::make_values(data, count);
        const Outcome got(*named.codec, values);
        EXPECT_LE(energy(got.rest), energy(values) * (1 + 1e-5))
            << variant << ", " << samples::to_string(data) << ", " << count;
      }
  }
}

// The mean over seeds, projected on some directions: within five standard errors.
TEST(UnbiasedCodecs, HaveTheValuesAsTheirMean) {
  constexpr size_t kCount = 500;
  constexpr int kDraws = 1000, kDirections = 6;
  for (const std::string& variant : samples::codec_variants()) {
    const NamedCodec named = make_codec(variant).value();
    if (!named.codec->info().unbiased || named.codec->info().lossless) continue;
    for (const Data data : {Data::kNormal, Data::kHeavyTail, Data::kSparse}) {
      const auto values = samples::make_values(data, kCount);
      double sum[kDirections] = {}, square_sum[kDirections] = {}, want[kDirections] = {};
      const auto project = [&](std::span<const float> x, int direction) {
        double dot = 0;  // on ones, on the values themselves, then on noise
        for (size_t i = 0; i < kCount; ++i)
          dot +=
              double{x[i]} * (direction == 0   ? 1
                              : direction == 1 ? values[i]
                                               : random_normal({.step = uint64_t(direction)}, i));
        return dot;
      };
      for (int d = 0; d < kDirections; ++d) want[d] = project(values, d);
      for (int draw = 0; draw < kDraws; ++draw) {
        const Outcome got(*named.codec, values, {.seed = static_cast<uint64_t>(draw)});
        for (int d = 0; d < kDirections; ++d) {
          const double dot = project(got.decoded, d);
          sum[d] += dot;
          square_sum[d] += dot * dot;
        }
      }
      for (int d = 0; d < kDirections; ++d) {
        const double mean = sum[d] / kDraws;
        const double variance = std::max(square_sum[d] / kDraws - mean * mean, 0.0);
        EXPECT_NEAR(mean, want[d], 5 * std::sqrt(variance / kDraws) + 1e-5 * std::abs(want[d]))
            << variant << ", " << samples::to_string(data) << ", direction " << d;
      }
    }
  }
}

}  // namespace
}  // namespace thinwire
