// For tests of sketches: what all of them promise of keys, sums, agreements and payloads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/testing/sparsifier_testing.h"
#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire::testing {

// The sign of value i in row `row`, as docs/wire-format.md says.
inline double sketch_sign(uint64_t key, uint32_t row, size_t i) {
  const RandomKey signs{.seed = key, .use = RandomUse::kCodec, .step = 1, .stream = row};
  return (random_word(signs, i / 32) >> i % 32 & 1) != 0 ? -1 : 1;
}

inline double energy(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

// The mean over draws of |x - decoded|^2.
inline double mean_error(const std::string& spec, const std::vector<float>& values, int draws) {
  Sender sender(spec, values.size());
  double sum = 0;
  for (int i = 0; i < draws; ++i) {
    sender.step(values, false);
    for (size_t j = 0; j < values.size(); ++j)
      sum += std::pow(double{values[j]} - sender.sent[j], 2);
  }
  return sum / draws;
}

// What arrives in a call of a stream with this name.
inline std::vector<float> arrives(const std::string& spec, const std::vector<float>& values,
                                  const Call& call, const std::string& name = "w") {
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = name, .shape = {values.size()}});
  std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
  named.codec->make_encoder(stream)->encode({.values = values}, call, payload, {});
  std::vector<float> out(values.size());
  named.codec->make_decoder(stream)->decode(payload, out).or_throw();
  return out;
}

inline void expect_shared_draws(const std::string& spec, size_t count) {
  const auto values = draw(normal, 0, count);
  const auto of = [&](const std::string& options, const Call& call) {
    return arrives(spec + options, values, call);
  };
  const auto first = of("", {.seed = 7, .step = 3});
  EXPECT_EQ(of("", {.seed = 7, .step = 3, .salt = 5}), first);
  EXPECT_NE(of("", {.seed = 8, .step = 3}), first);
  EXPECT_NE(of("", {.seed = 7, .step = 4}), first);
  EXPECT_NE(of("", {.seed = 7, .step = 3, .offset = 1}), first);
  EXPECT_NE(arrives(spec, values, {.seed = 7, .step = 3}, "v"), first);
  const auto own = of(",shared=false", {.seed = 7, .step = 3});
  EXPECT_EQ(of(",shared=false", {.seed = 7, .step = 3}), own);
  EXPECT_NE(of(",shared=false", {.seed = 7, .step = 3, .salt = 1}), own);
  EXPECT_NE(own, first);
  EXPECT_EQ(make_codec(spec).value().codec->info().agreed, Agreed::kPositions);
  EXPECT_EQ(make_codec(spec + ",shared=false").value().codec->info().agreed, Agreed::kNothing);
}

// The sum of what arrives of two ranks is what arrives of their sum.
inline void expect_sums_add_up(const std::string& spec, size_t count) {
  const auto a = draw(laplace, 1, count), b = draw(laplace, 2, count);
  std::vector<float> sum(count);
  for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  const auto of_a = arrives(spec, a, {.salt = 1}), of_b = arrives(spec, b, {.salt = 2});
  const auto both = arrives(spec, sum, {});
  for (size_t i = 0; i < count; ++i) ASSERT_NEAR(of_a[i] + of_b[i], both[i], 1e-5);
}

// Three ranks whose encoders agree: one payload, the mean of their sums; and what they keep is what
// the mean of their values lacks.
inline void expect_agreement(const std::string& spec, size_t count) {
  SCOPED_TRACE(spec);
  constexpr size_t kRanks = 3;
  const NamedCodec named = make_codec(spec).value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {count}});
  const auto rounds = named.codec->rounds(stream, false);
  ASSERT_EQ(rounds.size(), 1u);
  std::vector<std::unique_ptr<Encoder>> encoders;
  std::vector<std::vector<float>> values, rests;
  std::vector<float> mean(rounds[0].size / sizeof(float));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    encoders.push_back(named.codec->make_encoder(stream));
    values.push_back(draw(normal, rank, count));
    rests.emplace_back(count);
    std::vector<float> offered(mean.size());
    EXPECT_EQ(encoders[rank]->offer(0, {.values = values[rank]}, {.salt = rank},
                                    std::as_writable_bytes(std::span(offered))),
              rounds[0].size);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += offered[i] / kRanks;
  }
  std::vector<std::byte> first;
  std::vector<double> lacking(count), kept(count);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(encoders[rank]->adopt(0, std::as_bytes(std::span(mean))));
    std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
    encoders[rank]->encode({.values = values[rank]}, {.salt = rank}, payload, rests[rank]);
    if (rank == 0) first = payload;
    EXPECT_EQ(payload, first);
    EXPECT_LT(energy(rests[rank]), 1.5 * energy(values[rank]));
    for (size_t i = 0; i < count; ++i) {
      lacking[i] += double{values[rank][i]} / kRanks;
      kept[i] += double{rests[rank][i]} / kRanks;
    }
  }
  std::vector<float> decoded(count);
  ASSERT_TRUE(named.codec->make_decoder(stream)->decode(first, decoded));
  for (size_t i = 0; i < count; ++i) ASSERT_NEAR(kept[i], lacking[i] - decoded[i], 1e-5) << i;

  // After a commit, or a rollback, it encodes as the only rank would.
  encoders[0]->commit();
  encoders[1]->rollback();
  for (const size_t rank : {0u, 1u}) {
    std::vector<std::byte> alone(first.size()), expected(first.size());
    encoders[rank]->encode({.values = values[rank]}, {.step = 1}, alone, {});
    named.codec->make_encoder(stream)->encode({.values = values[rank]}, {.step = 1}, expected, {});
    EXPECT_EQ(alone, expected) << rank;
  }
}

// Of a spec that makes 100 sums of 1,000 values.
inline void expect_sizes(const std::string& spec) {
  constexpr size_t kCount = 1000;
  for (const auto& [format, bytes] :
       {std::pair{"fp32", 400u}, {"bf16", 200u}, {"int8", 104u}, {"sign", 17u}}) {
    Sender sender(spec + ",values=" + format, kCount);
    const Encoded encoded = sender.step(draw(laplace, 0, kCount));
    EXPECT_EQ(encoded.kept, 100u);
    EXPECT_EQ(encoded.target, 100u);
    EXPECT_EQ(sender.payload.size(), 8 + bytes);
  }
}

inline void expect_finite_near_the_largest(const std::vector<std::string>& specs) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const std::string& spec : specs)
    for (const size_t count : {1u, 2u, 100u, 10'000u}) {
      SCOPED_TRACE(spec + ", " + std::to_string(count));
      std::vector<float> values(count, kMost);
      for (size_t i = 0; i < count; i += 3) values[i] = -kMost;
      Sender sender(spec, count);
      sender.step(values);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(std::isfinite(sender.sent[i]));
        ASSERT_TRUE(std::isfinite(sender.residual[i]));
      }
    }
}

// Sums are those of smaller values, times a power of two, up to the bound of what is sent. From
// 2^95 on they are formed of a small multiple of the values, so that none overflows.
inline void expect_sums_up_to_the_bound(const std::vector<std::string>& specs) {
  constexpr float kBound = 0x1p86f;
  const auto values = draw(normal, 0, 1000);
  const auto sums = [&](const std::string& spec, int exponent) {
    std::vector<float> scaled;
    for (const float value : values) scaled.push_back(std::ldexp(value, exponent));
    Sender sender(spec, values.size());
    sender.step(scaled);
    std::vector<float> found((sender.payload.size() - 8) / sizeof(float));
    std::memcpy(found.data(), sender.payload.data() + 8, found.size() * sizeof(float));
    return found;
  };
  for (const std::string& spec : specs) {
    SCOPED_TRACE(spec);
    const auto small = sums(spec, 0);
    for (const int exponent : {70, 86, 94, 100, 120}) {
      const auto large = sums(spec, exponent);
      for (size_t i = 0; i < small.size(); ++i)
        ASSERT_EQ(large[i], std::clamp(std::ldexp(small[i], exponent), -kBound, kBound))
            << exponent << ", " << i;
    }
  }
}

inline void expect_refusals(const std::string& spec, size_t count) {
  Sender sender(spec, count);
  sender.step(draw(laplace, 0, count));
  auto payload = sender.payload;
  std::vector<float> out(count);
  const auto code = [&] { return sender.decoder().decode_add(payload, 1, out).code(); };
  const auto put = [&](float sum) { std::memcpy(payload.data() + 8, &sum, sizeof sum); };
  EXPECT_EQ(code(), ErrorCode::kOk);
  for (size_t i = 0; i < 8; ++i) payload[i] = std::byte{0xff};  // any key is a key
  EXPECT_EQ(code(), ErrorCode::kOk);
  payload.push_back({});
  EXPECT_EQ(code(), ErrorCode::kBadLength);
  payload.pop_back();
  put(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(code(), ErrorCode::kCorrupt);
  put(-0x1p87f);
  EXPECT_EQ(code(), ErrorCode::kOk);
  put(-0x1.8p87f);
  EXPECT_EQ(code(), ErrorCode::kCorrupt);
  EXPECT_NE(sender.decoder().decode_add(payload, 1, out).message().find("too large"),
            std::string::npos);
}

}  // namespace thinwire::testing
