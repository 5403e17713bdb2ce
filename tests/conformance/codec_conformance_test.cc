// What every codec of the registry promises, on every kind of data and every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/testing/test_name.h"
#include "kernel/for_each_target.h"
#include "support/samples.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using samples::Data;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class CodecConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const NamedCodec named_ = make_codec(GetParam()).value();
  const Codec& codec_ = *named_.codec;

  std::vector<size_t> counts() const {
    std::set<size_t> set = {0, 1, 2, 7, 8, 9, 255, 1000, 100003};
    if (const size_t block = codec_.info().block; block > 1)
      set.insert({block - 1, block, block + 1});
    return {set.begin(), set.end()};
  }

  std::vector<StreamSpec> streams() const {
    std::vector<StreamSpec> all = {samples::mixed_tensors()};
    for (size_t count : counts()) all.push_back(samples::one_tensor(count));
    all.push_back(samples::one_tensor(1021, TensorKind::kConvolution));
    all.push_back(samples::one_matrix(37, 61));
    return all;
  }

  std::vector<float> decode(const StreamSpec& stream, std::span<const std::byte> payload) const {
    std::vector<float> out(stream.count(), 0.0f);
    const Status status = codec_.make_decoder(stream)->decode_add(payload, 1.0f, out);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return out;
  }

  // Calls body(stream, data, values) for all of them.
  template <typename Body>
  void for_all(Body&& body) const {
    for (const StreamSpec& stream : streams()) {
      for (Data data : samples::kAllData) {
        SCOPED_TRACE(GetParam() + ", " + std::to_string(stream.count()) + " values, " +
                     std::string(samples::to_string(data)));
        body(stream, data, samples::make_values(data, stream.count()));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(CodecConformance, CanonicalTextNamesTheSameCodec) {
  EXPECT_EQ(make_codec(named_.canonical).value().canonical, named_.canonical);
}

TEST_P(CodecConformance, StaysWithinItsBound) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    const auto payload = samples::encode(codec_, stream, values);
    EXPECT_LE(payload.size(), codec_.max_encoded_size(stream));
    if (codec_.info().fixed_size) {
      EXPECT_EQ(payload.size(), codec_.max_encoded_size(stream));
    }
  });
}

TEST_P(CodecConformance, RemainderIsWhatTheDecoderLeaves) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    std::vector<float> rest;
    const auto payload = samples::encode(codec_, stream, values, {}, &rest);
    const auto decoded = decode(stream, payload);
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      wrong += !std::isfinite(decoded[i]) || rest[i] != values[i] - decoded[i];
      if (codec_.info().lossless) wrong += decoded[i] != values[i];
    }
    ASSERT_EQ(wrong, 0u);
  });
}

TEST_P(CodecConformance, RemainderMayBeTheValuesOrNotWanted) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    std::vector<float> rest, in_place = values;
    const auto payload = samples::encode(codec_, stream, values, values, &rest);
    std::vector<std::byte> out(codec_.max_encoded_size(stream));
    out.resize(codec_.make_encoder(stream)
                   ->encode({.values = in_place, .fresh = values, .moments = {}}, {}, out, in_place)
                   .size);
    EXPECT_EQ(out, payload);
    EXPECT_TRUE(same_bits(in_place, rest));
    EXPECT_EQ(samples::encode(codec_, stream, values, values), payload);
  });
}

TEST_P(CodecConformance, MomentsGivenOrNotAreTheSame) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    std::vector<std::byte> out(codec_.max_encoded_size(stream));
    out.resize(
        codec_.make_encoder(stream)
            ->encode({.values = values, .fresh = {}, .moments = measure(values)}, {}, out, {})
            .size);
    EXPECT_EQ(out, samples::encode(codec_, stream, values));
  });
}

TEST_P(CodecConformance, LooksAtTheStepsOwnPartOnlyIfItSaysSo) {
  if (codec_.info().fresh) GTEST_SKIP() << "does";
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    const auto fresh = samples::make_values(Data::kNormal, values.size(), 2);
    EXPECT_EQ(samples::encode(codec_, stream, values, fresh),
              samples::encode(codec_, stream, values));
  });
}

TEST_P(CodecConformance, DecodingIsAddingToZeros) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    const auto payload = samples::encode(codec_, stream, values);
    std::vector<float> out(values.size(), 7.0f);
    ASSERT_TRUE(codec_.make_decoder(stream)->decode(payload, out).is_ok());
    EXPECT_TRUE(same_bits(out, decode(stream, payload)));
  });
}

TEST_P(CodecConformance, DecodingAddsWithWeight) {
  for_all([&](const StreamSpec& stream, Data data, const std::vector<float>& values) {
    if (data == Data::kHuge) return;  // the sums below would overflow
    const auto payload = samples::encode(codec_, stream, values);
    const auto decoded = decode(stream, payload);
    std::vector<float> out(values.size(), 2.0f);
    ASSERT_TRUE(codec_.make_decoder(stream)->decode_add(payload, 0.25f, out).is_ok());
    size_t wrong = 0;
    for (size_t i = 0; i < out.size(); ++i)  // a scaled payload may round once more: one ulp of 2
      wrong += std::abs(out[i] - (2.0f + 0.25f * decoded[i])) >
               3e-7f * std::max(2.0f, std::abs(decoded[i]));
    EXPECT_EQ(wrong, 0u);
  });
}

// A product beyond the largest float is refused, and nothing else is: values of zero stay out of
// it.
TEST_P(CodecConformance, WeightsThatCarryValuesBeyondTheLargestFloatAreRefused) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for_all([&](const StreamSpec& stream, Data, std::vector<float> values) {
    if (!values.empty()) {  // a scale near the largest float
      values.front() = kLargest;
      values.back() = 0;
    }
    const auto payload = samples::encode(codec_, stream, values);
    const auto decoder = codec_.make_decoder(stream);
    const auto decoded = decode(stream, payload);
    for (const float weight : {-1.0f, 1.5f, -3.0f, 1e20f, kLargest, INFINITY, kNone}) {
      SCOPED_TRACE("weight " + std::to_string(weight));
      bool finite = true;
      for (const float value : decoded) finite &= std::isfinite(weight * value);
      std::vector<float> out(values.size(), 0.0f);
      const Status status = decoder->decode_add(payload, weight, out);
      ASSERT_EQ(status.is_ok(), finite) << status.message();
      if (!status) {
        EXPECT_EQ(status.code(), ErrorCode::kNonFinite);
        continue;
      }
      size_t wrong = 0;
      for (size_t i = 0; i < out.size(); ++i)
        wrong += !(std::abs(out[i] - weight * decoded[i]) <= 3e-7f * std::abs(weight * decoded[i]));
      EXPECT_EQ(wrong, 0u);
    }
  });
}

// Visitors see what decode_add adds, and no more of it than was announced.
TEST_P(CodecConformance, VisitingSparsePayloadsIsDecodingThem) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    const auto payload = samples::encode(codec_, stream, values);
    const auto decoder = codec_.make_decoder(stream);
    std::vector<float> visited(values.size());
    std::vector<uint32_t> order;
    size_t next = 0, wrong = 0;
    const Status status = decoder->visit(
        payload, [&](std::span<const uint32_t> positions, std::span<const float> kept) {
          ASSERT_EQ(positions.size(), kept.size());
          for (size_t i = 0; i < positions.size(); ++i) {
            wrong += positions[i] < next;
            ASSERT_LT(positions[i], visited.size());
            next = positions[i] + size_t{1};
            visited[positions[i]] = kept[i];
          }
          order.insert(order.end(), positions.begin(), positions.end());
        });
    if (!codec_.info().sparse) {
      EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
      return;
    }
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(wrong, 0u);
    const auto decoded = decode(stream, payload);
    for (size_t i = 0; i < visited.size(); ++i) wrong += visited[i] != decoded[i];
    EXPECT_EQ(wrong, 0u);
    // Ranks may add either way, and must come to the same bits.
    for (const float weight : {0.25f, 1.0f / 3}) {
      std::vector<float> sum(values.size()), expected(values.size());
      ASSERT_TRUE(decoder->decode_add(payload, weight, sum));
      const auto add = [&](std::span<const uint32_t> positions, std::span<const float> kept) {
        for (size_t i = 0; i < positions.size(); ++i) expected[positions[i]] += weight * kept[i];
      };
      ASSERT_TRUE(decoder->visit(payload, add));
      EXPECT_TRUE(same_bits(sum, expected)) << "weight " << weight;
    }
    EXPECT_LE(order.size(), codec_.max_kept(stream));
    std::vector<std::byte> out(codec_.max_encoded_size(stream));
    const auto encoder = codec_.make_encoder(stream);
    const Encoded encoded = encoder->encode({.values = values}, {}, out, {});
    EXPECT_EQ(order.size(), encoded.kept);
    if (!encoded.positions.empty()) {
      EXPECT_TRUE(std::ranges::equal(encoded.positions, order));
    }
  });
}

TEST_P(CodecConformance, EveryTargetWritesAndReadsTheSameBits) {
  for_all([&](const StreamSpec& stream, Data, const std::vector<float>& values) {
    const auto fresh = samples::make_values(Data::kNormal, values.size(), 2);
    std::vector<float> rest, decoded;
    const auto payload = samples::encode(codec_, stream, values, fresh, &rest);
    decoded = decode(stream, payload);
    kernel::for_each_target([&](std::string_view target) {
      std::vector<float> rest_here;
      EXPECT_EQ(samples::encode(codec_, stream, values, fresh, &rest_here), payload) << target;
      EXPECT_TRUE(same_bits(rest_here, rest)) << target;
      EXPECT_TRUE(same_bits(decode(stream, payload), decoded)) << target;
    });
  });
}

// What lets an exchange cut a stream into ranges without a change to any value.
TEST_P(CodecConformance, PartsThatStartWithABlockAreCodedAsInTheWhole) {
  const size_t block = codec_.info().block;
  if (block == 0) GTEST_SKIP() << "not coded in blocks";
  const size_t count = 5 * block + 3;
  for (Data data : samples::kAllData) {
    SCOPED_TRACE(samples::to_string(data));
    const auto values = samples::make_values(data, count);
    std::vector<float> rest, part_rest, rests;
    const auto whole = samples::encode(codec_, samples::one_tensor(count), values, {}, &rest);
    std::vector<std::byte> parts;
    for (const auto& [begin, end] :
         {std::pair(0 * block, block), std::pair(block, 3 * block), std::pair(3 * block, count)}) {
      const auto part = samples::encode(codec_, samples::one_tensor(end - begin),
                                        std::span(values).subspan(begin, end - begin), {},
                                        &part_rest, {.offset = begin});
      parts.insert(parts.end(), part.begin(), part.end());
      rests.insert(rests.end(), part_rest.begin(), part_rest.end());
    }
    EXPECT_EQ(parts, whole);
    EXPECT_TRUE(same_bits(rests, rest));
  }
}

// Of 4000 draws, the mean of each value lies within six standard errors of it, and the squared
// distances of all are what chance makes them: a bias of a tenth of a standard error would show.
TEST_P(CodecConformance, MeansOverDrawsAreTheValuesIfUnbiased) {
  if (!codec_.info().unbiased || codec_.info().lossless) GTEST_SKIP() << "biased, or exact";
  constexpr size_t kCount = 300;
  constexpr size_t kDraws = 4000;
  const StreamSpec stream = samples::one_tensor(kCount);
  const auto decoder = codec_.make_decoder(stream);
  for (Data data : {Data::kNormal, Data::kHeavyTail, Data::kConstant, Data::kSparse}) {
    SCOPED_TRACE(samples::to_string(data));
    const auto values = samples::make_values(data, kCount);
    std::vector<double> sum(kCount), square_sum(kCount), worst(kCount);
    std::vector<float> decoded(kCount);
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const auto payload =
          samples::encode(codec_, stream, values, {}, nullptr, {.seed = 1, .step = draw});
      std::fill(decoded.begin(), decoded.end(), 0.0f);
      ASSERT_TRUE(decoder->decode_add(payload, 1.0f, decoded).is_ok());
      for (size_t i = 0; i < kCount; ++i) {
        const double error = double{decoded[i]} - values[i];
        sum[i] += error;
        square_sum[i] += error * error;
        worst[i] = std::max(worst[i], std::abs(error));
      }
    }
    double largest = 0;  // levels are floats: their rounding, up to that of the largest, is no draw
    for (const float value : values) largest = std::max(largest, std::abs(double{value}));
    const double step = *std::max_element(worst.begin(), worst.end());
    double distance = 0, side = 0;
    size_t random = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double mean = sum[i] / kDraws;
      const double variance = square_sum[i] / kDraws - mean * mean;
      const double error = std::sqrt(std::max(variance, 0.0) / (kDraws - 1));
      // An outcome with less than 20 chances in 4000 may never have come up.
      const double rare = 20.0 / kDraws * std::max(step, std::abs(double{values[i]}));
      EXPECT_LE(std::abs(mean), 6 * error + rare + largest * 0x1p-22) << i << ": " << values[i];
      if (variance == 0 || variance * kDraws < 30 * worst[i] * worst[i]) continue;  // not normal
      distance += mean * mean / (error * error);
      side += mean / error;
      ++random;
    }
    if (random < 30) continue;
    const auto n = static_cast<double>(random);
    EXPECT_NEAR(distance / n, 1, 6 * std::sqrt(2 / n));
    EXPECT_LE(std::abs(side), 6 * std::sqrt(n));
  }
}

TEST_P(CodecConformance, RefusesEveryTruncationAndExtension) {
  for (const StreamSpec& stream :
       {samples::mixed_tensors(), samples::one_tensor(9), samples::one_tensor(0)}) {
    for (Data data : samples::kAllData) {
      const auto payload =
          samples::encode(codec_, stream, samples::make_values(data, stream.count()));
      const auto decoder = codec_.make_decoder(stream);
      std::vector<float> out(stream.count());
      for (size_t size = 0; size < payload.size(); ++size)
        EXPECT_FALSE(decoder->decode_add(std::span(payload).first(size), 1, out).is_ok())
            << GetParam() << ", " << samples::to_string(data) << ": " << size << " of "
            << payload.size() << " bytes";
      auto longer = payload;
      longer.push_back(std::byte{0});
      EXPECT_FALSE(decoder->decode_add(longer, 1, out).is_ok()) << GetParam();
    }
  }
}

// Runs an encoder with residual feedback for some steps; the payloads of all steps in one string.
class Sequence {
 public:
  Sequence(const Codec& codec, const StreamSpec& stream)
      : encoder(codec.make_encoder(stream)), out_(codec.max_encoded_size(stream)) {}

  std::vector<std::byte> step(uint64_t number, size_t count) {
    const auto values = samples::make_values(Data::kHeavyTail, count, 10 + number);
    auto payload = out_;
    payload.resize(
        encoder
            ->encode({.values = values, .fresh = {}, .moments = {}}, {.step = number}, payload, {})
            .size);
    return payload;
  }

  std::unique_ptr<Encoder> encoder;

 private:
  std::vector<std::byte> out_;
};

TEST_P(CodecConformance, RollbackForgetsAndLoadContinues) {
  const StreamSpec stream = samples::one_matrix(50, 100);
  Sequence straight(codec_, stream), bumpy(codec_, stream);
  for (uint64_t step = 0; step < 23; ++step) {
    bumpy.step(1000 + step, 5000);  // a step that is skipped
    bumpy.encoder->rollback();
    const auto payload = straight.step(step, 5000);
    ASSERT_EQ(bumpy.step(step, 5000), payload) << "step " << step;
    straight.encoder->commit();
    bumpy.encoder->commit();
    if (step % 6 == 5) {  // a restart
      auto fresh = codec_.make_encoder(stream);
      ASSERT_TRUE(fresh->load(bumpy.encoder->save()).is_ok());
      bumpy.encoder = std::move(fresh);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecConformance, ::testing::ValuesIn(samples::codec_variants()),
                         [](const auto& row) {
                           return std::to_string(row.index) + "_" + test_name(row.param);
                         });

}  // namespace
}  // namespace thinwire
