// Tests of lgc: what each rank sends of its values, training that is the same everywhere, hostile
// offers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr size_t kCount = 20000;
constexpr const char* kCoded = "lgc:density=0.05,innovation=0.001";

// Half of each value is the same on all ranks.
Values make_values(uint64_t rank, uint64_t step = 0) {
  Values values(kCount);
  for (size_t i = 0; i < values.size(); ++i) {
    const float common = random_normal({.seed = 100, .use = RandomUse::kTest, .step = step}, i);
    const float own = random_normal({.seed = rank, .use = RandomUse::kTest, .step = step}, i);
    values[i] = common * std::abs(common) + own * std::abs(own);
  }
  return values;
}

double energy(const Values& values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return sum;
}

// Two ranks whose rounds are made by hand; rank 0 leads.
struct Ranks {
  explicit Ranks(const std::string& text)
      : named(make_codec(text).value()), rounds(named.codec->rounds(stream, false)) {
    for (int rank = 0; rank < 2; ++rank) encoders.push_back(named.codec->make_encoder(stream));
  }

  Bytes offer(size_t rank, size_t round, const Values& values) const {
    Bytes out(rounds[round].size);
    out.resize(encoders[rank]->offer(round, {.values = values}, {}, out));
    return out;
  }

  static Bytes mean(const Bytes& a, const Bytes& b) {
    Bytes result = a;
    for (size_t at = 0; at < a.size(); at += sizeof(float)) {
      float x, y;
      std::memcpy(&x, a.data() + at, sizeof x);
      std::memcpy(&y, b.data() + at, sizeof y);
      const float sum = (x + y) * 0.5f;
      std::memcpy(result.data() + at, &sum, sizeof sum);
    }
    return result;
  }

  // decoded is that of both; rests are theirs.
  void step(const std::vector<Values>& values) {
    positions = offer(0, 0, values[0]);
    for (const auto& encoder : encoders) ASSERT_TRUE(encoder->adopt(0, positions));
    const Bytes combined = mean(offer(0, 1, values[0]), offer(1, 1, values[1]));
    rests.clear();
    Bytes payload[2];
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(encoders[rank]->adopt(1, combined));
      payload[rank].resize(named.codec->max_encoded_size(stream));
      rests.emplace_back(kCount);
      encoded = encoders[rank]->encode({.values = values[rank]}, {}, payload[rank], rests.back());
      payload[rank].resize(encoded.size);
    }
    ASSERT_EQ(payload[0], payload[1]);
    decoded.assign(kCount, 0.0f);
    ASSERT_TRUE(named.codec->make_decoder(stream)->decode_add(payload[0], 1, decoded));
  }

  void commit() const {
    for (const auto& encoder : encoders) encoder->commit();
  }

  const StreamSpec stream = single_tensor({.name = "w", .shape = {kCount}});
  const NamedCodec named;
  const std::vector<Round> rounds;
  std::vector<std::unique_ptr<Encoder>> encoders;
  Bytes positions;
  std::vector<Values> rests;
  Values decoded;
  Encoded encoded;
};

Values matrix_of(const Encoder& encoder) {
  for (const StateArray& array : encoder.save())
    if (array.name == "matrix") {
      Values values(array.data.size() / sizeof(float));
      std::memcpy(values.data(), array.data.data(), array.data.size());
      return values;
    }
  return {};
}

// The mean of what ranks keep is the mean of what they had minus what arrived: nothing is lost.
TEST(Lgc, WhatWasNotSentStays) {
  for (const char* text : {kCoded, "lgc:density=0.05,order=1,block=7,code=3,innovation=0",
                           "lgc:density=0.05,train=true"}) {
    Ranks ranks(text);
    const std::vector<Values> values = {make_values(1), make_values(2)};
    ranks.step(values);
    for (size_t i = 0; i < kCount; ++i) {
      const float had = (values[0][i] + values[1][i]) / 2;
      const float left = (ranks.rests[0][i] + ranks.rests[1][i]) / 2;
      ASSERT_NEAR(left, had - ranks.decoded[i], 1e-5f) << text << " " << i;
    }
  }
}

// The k largest of the leader; of them its code has nearly all, and its innovations exactly all.
TEST(Lgc, OfTheLeadersLargestValuesTheCodeHasNearlyAll) {
  Ranks ranks(kCoded);
  const std::vector<Values> values = {make_values(1), make_values(2)};
  ranks.step(values);
  EXPECT_EQ(ranks.encoded.kept, kCount / 20);
  EXPECT_EQ(ranks.encoded.target, kCount / 20);
  Values kept, left;
  float largest_left = 0, least = INFINITY;
  size_t exact = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (ranks.rests[0][i] == values[0][i]) {
      largest_left = std::max(largest_left, std::abs(values[0][i]));
      EXPECT_EQ(ranks.rests[1][i], values[1][i]);
      continue;
    }
    least = std::min(least, std::abs(values[0][i]));
    kept.push_back(values[0][i]);
    left.push_back(ranks.rests[0][i]);
    exact += left.back() == 0 && ranks.rests[1][i] == 0;
  }
  EXPECT_EQ(kept.size(), kCount / 20);
  EXPECT_GE(least, largest_left);
  EXPECT_GE(exact, kCount / 1000);
  EXPECT_LT(energy(left), 0.02 * energy(kept));
  EXPECT_GT(energy(left), 0);
}

TEST(Lgc, InnovationsAreWhatTheCodeReproducesWorst) {
  Ranks with(kCoded), without("lgc:density=0.05,innovation=0");
  std::vector<Values> values = {make_values(1), make_values(2)};
  values[0][777] = 1e4f;  // larger than any neighbour in the leader's order
  with.step(values);
  without.step(values);
  EXPECT_EQ(with.rests[0][777], 0);
  EXPECT_EQ(with.rests[1][777], 0);
  EXPECT_NE(without.rests[0][777], 0);
  EXPECT_LT(energy(with.rests[0]), energy(without.rests[0]));
}

// Bytes of a step: what a float for a block of 16 and four bits for a label come to.
TEST(Lgc, OffersAreMuchSmallerThanScalecoms) {
  Ranks ranks("lgc:density=0.05,innovation=0");
  const NamedCodec scalecom = make_codec("scalecom:density=0.05").value();
  const auto rounds = scalecom.codec->rounds(ranks.stream, false);
  EXPECT_EQ(rounds[1].size, 4 * kCount / 20);
  EXPECT_LT(ranks.rounds[1].size, rounds[1].size / 15);
  const auto encoder = scalecom.codec->make_encoder(ranks.stream);
  const Values values = make_values(1);
  Bytes positions(rounds[0].size);
  positions.resize(encoder->offer(0, {.values = values}, {}, positions));
  EXPECT_EQ(ranks.offer(0, 0, values).size(), positions.size() + 4 * kCount / 20 / 8);
}

TEST(Lgc, StreamsTooShortForCodesSendValues) {
  const NamedCodec lgc = make_codec("lgc:density=0.0002").value();
  const NamedCodec scalecom = make_codec("scalecom:density=0.0002").value();
  const StreamSpec stream = single_tensor({.name = "w", .shape = {kCount}});
  const Values values = make_values(1);
  const auto encode = [&](const NamedCodec& named) {
    Bytes payload(named.codec->max_encoded_size(stream));
    payload.resize(
        named.codec->make_encoder(stream)->encode({.values = values}, {}, payload, {}).size);
    return payload;
  };
  EXPECT_EQ(encode(lgc), encode(scalecom));
  for (size_t round : {0, 1})
    EXPECT_EQ(lgc.codec->rounds(stream, false)[round].size,
              scalecom.codec->rounds(stream, false)[round].size);
}

// Training sends the values themselves, and both ranks come to the same matrix, which codes better.
TEST(Lgc, TrainingIsTheSameOnAllRanksAndOutlastsTheChangeToCodes) {
  Ranks training("lgc:density=0.002,order=8,train=true");
  const Values before = matrix_of(*training.encoders[0]);
  for (uint64_t step = 0; step < 30; ++step) {
    training.step({make_values(1, step), make_values(2, step)});
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_TRUE(training.rests[0][i] == 0 || training.decoded[i] == 0);
    if (step == 7) {
      for (const auto& encoder : training.encoders) encoder->rollback();
    } else {
      training.commit();
    }
  }
  const Values after = matrix_of(*training.encoders[0]);
  EXPECT_NE(after, before);
  EXPECT_EQ(after, matrix_of(*training.encoders[1]));

  const std::string coded = "lgc:density=0.002,order=8,innovation=0";
  Ranks trained(coded), untrained(coded);
  for (size_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(trained.encoders[rank]->load(training.encoders[rank]->save()));
  EXPECT_EQ(matrix_of(*trained.encoders[0]), after);
  const std::vector<Values> values = {make_values(1, 99), make_values(2, 99)};
  trained.step(values);
  untrained.step(values);
  const auto lost = [&](const Ranks& ranks) {
    double sum = 0;
    for (size_t i = 0; i < kCount; ++i)
      if (ranks.decoded[i] != 0) sum += double{ranks.rests[0][i]} * ranks.rests[0][i];
    return sum;
  };
  EXPECT_LT(lost(trained), 0.7 * lost(untrained));
}

TEST(Lgc, StepsThatAreSkippedOrEncodedAloneTrainNothing) {
  Ranks ranks("lgc:density=0.05,train=true");
  const Values before = matrix_of(*ranks.encoders[0]);
  const std::vector<Values> values = {make_values(1), make_values(2)};
  ranks.step(values);
  for (const auto& encoder : ranks.encoders) encoder->rollback();
  EXPECT_EQ(matrix_of(*ranks.encoders[0]), before);
  Bytes payload(ranks.named.codec->max_encoded_size(ranks.stream));
  ranks.encoders[0]->encode({.values = values[0]}, {}, payload, {});
  ranks.commit();
  EXPECT_EQ(matrix_of(*ranks.encoders[0]), before);
  ranks.step(values);
  ranks.commit();
  EXPECT_NE(matrix_of(*ranks.encoders[0]), before);
}

TEST(Lgc, AMatrixOfAnotherShapeStartsAfresh) {
  Ranks training("lgc:density=0.05,train=true"), other("lgc:density=0.05,block=32");
  training.step({make_values(1), make_values(2)});
  training.commit();
  const Values fresh = matrix_of(*other.encoders[0]);
  ASSERT_TRUE(other.encoders[0]->load(training.encoders[0]->save()));
  EXPECT_EQ(matrix_of(*other.encoders[0]), fresh);
  StateArrays broken = training.encoders[0]->save();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(broken[1].data.data(), &nan, sizeof nan);
  EXPECT_EQ(training.encoders[1]->load(broken).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(matrix_of(*training.encoders[1]), matrix_of(*training.encoders[0]));
}

TEST(Lgc, RoundsOfAStepThatIsOverAreForgotten) {
  for (const bool counts : {true, false}) {
    Ranks ranks(kCoded), fresh(kCoded);
    const Values mine = make_values(2);
    ranks.step({make_values(1), mine});
    counts ? ranks.encoders[1]->commit() : ranks.encoders[1]->rollback();
    Bytes got(ranks.named.codec->max_encoded_size(ranks.stream)), expected = got;
    got.resize(ranks.encoders[1]->encode({.values = mine}, {}, got, {}).size);
    expected.resize(fresh.encoders[1]->encode({.values = mine}, {}, expected, {}).size);
    EXPECT_EQ(got, expected);
  }
}

TEST(Lgc, HostileOffersAreRefused) {
  Ranks ranks(kCoded);
  Encoder& other = *ranks.encoders[1];
  const Values values = make_values(2);
  const Bytes good = ranks.offer(0, 0, make_values(1));
  for (size_t size = 0; size < good.size(); size += 1 + size / 8)
    EXPECT_FALSE(other.adopt(0, std::span(good).first(size))) << size;
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(other.adopt(0, longer));
  const auto with_word = [&](size_t at, uint32_t word) {
    Bytes bytes = good;
    std::memcpy(bytes.data() + at, &word, sizeof word);
    return bytes;
  };
  for (const uint32_t word : {0u, 1001u, 0xffffffffu}) {
    EXPECT_FALSE(other.adopt(0, with_word(0, word))) << "kept";
    EXPECT_FALSE(other.adopt(0, with_word(4, word))) << "innovations";
    EXPECT_FALSE(other.adopt(0, with_word(8, word))) << "their bytes";
  }
  // More positions, or more innovations, than the options allow.
  for (const char* text :
       {"lgc:density=0.0501,innovation=0.001", "lgc:density=0.05,innovation=0.0011"}) {
    const Ranks more(text);
    const Bytes offer = more.offer(0, 0, make_values(1));
    EXPECT_TRUE(more.encoders[1]->adopt(0, offer));
    EXPECT_FALSE(other.adopt(0, offer)) << text;
  }
  // Any other bytes give positions in the stream, or none; codes of any size are finite or refused.
  Values huge(ranks.rounds[1].size / sizeof(float), std::numeric_limits<float>::max());
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    Bytes bytes = good;
    const auto words = random_block({.use = RandomUse::kTest, .step = trial}, 0);
    bytes[words[0] % bytes.size()] ^= static_cast<std::byte>(1 + words[1] % 255);
    if (!other.adopt(0, bytes)) continue;
    EXPECT_EQ(ranks.offer(1, 1, values).size(), ranks.rounds[1].size);
    EXPECT_EQ(other.adopt(1, std::as_bytes(std::span(huge))).code(), ErrorCode::kCorrupt);
    other.rollback();
  }
  EXPECT_FALSE(other.adopt(1, std::span(good).first(4)));
}

}  // namespace
}  // namespace thinwire
