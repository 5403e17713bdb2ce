// Tests of scalecom: all ranks adopt the leader's positions, their size is near the entropy, and
// corrupt positions are refused.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

std::vector<float> make_values(uint64_t seed) {
  std::vector<float> values(20000);
  for (size_t i = 0; i < values.size(); ++i) {
    const float unit = 2 * random_unit({.seed = seed, .use = RandomUse::kTest}, i) - 1;
    values[i] = unit * unit * unit;
  }
  return values;
}

std::vector<std::byte> encode(const Codec& codec, const StreamSpec& stream,
                              std::span<const float> values) {
  std::vector<std::byte> payload(codec.max_encoded_size(stream));
  payload.resize(codec.make_encoder(stream)->encode({.values = values}, {}, payload, {}).size);
  return payload;
}

class Scalecom : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 20000;

  std::vector<std::byte> offer(Encoder& encoder, size_t round, std::span<const float> values) {
    std::vector<std::byte> out(rounds_[round].size);
    out.resize(encoder.offer(round, {.values = values}, {}, out));
    return out;
  }

  const StreamSpec stream_ = single_tensor({.name = "w", .shape = {kCount}});
  const NamedCodec named_ = make_codec("scalecom:density=0.01").value();
  const std::vector<Round> rounds_ = named_.codec->rounds(stream_, false);
  const std::unique_ptr<Encoder> leader_ = named_.codec->make_encoder(stream_);
  const std::unique_ptr<Encoder> other_ = named_.codec->make_encoder(stream_);
  const std::vector<float> values_ = make_values(1);
  const std::vector<float> others_ = make_values(2);
};

TEST_F(Scalecom, OthersSendTheirValuesAtTheLeadersPositions) {
  const auto positions = offer(*leader_, 0, values_);
  ASSERT_TRUE(leader_->adopt(0, positions));
  ASSERT_TRUE(other_->adopt(0, positions));
  const auto of_leader = offer(*leader_, 1, values_);
  const auto of_other = offer(*other_, 1, others_);
  ASSERT_TRUE(leader_->adopt(1, of_other));  // as if it were the mean
  std::vector<float> rest(kCount), decoded(kCount);
  std::vector<std::byte> payload(named_.codec->max_encoded_size(stream_));
  const Encoded encoded = leader_->encode({.values = values_}, {}, payload, rest);
  payload.resize(encoded.size);
  ASSERT_TRUE(named_.codec->make_decoder(stream_)->decode_add(payload, 1, decoded));
  EXPECT_EQ(encoded.kept, kCount / 100);
  float least = INFINITY, largest_left = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (decoded[i] == 0) {
      EXPECT_EQ(rest[i], values_[i]);
      largest_left = std::max(largest_left, std::abs(values_[i]));
    } else {
      EXPECT_EQ(decoded[i], others_[i]);
      EXPECT_EQ(rest[i], 0) << "of its own all is sent";
      least = std::min(least, std::abs(values_[i]));
    }
  }
  EXPECT_GE(least, largest_left) << "the leader's largest";
  EXPECT_NE(of_leader, of_other);
}

TEST_F(Scalecom, PositionsTakeLittleMoreThanTheirEntropy) {
  const double rho = 0.01;
  const double entropy =
      kCount * (-rho * std::log2(rho) - (1 - rho) * std::log2(1 - rho)) / 8;  // bytes
  EXPECT_LT(static_cast<double>(offer(*leader_, 0, values_).size()) - 4, 1.03 * entropy);
}

TEST_F(Scalecom, WithoutRoundsItIsTopk) {
  const NamedCodec topk = make_codec("topk:density=0.01").value();
  EXPECT_EQ(encode(*named_.codec, stream_, values_), encode(*topk.codec, stream_, values_));
}

TEST_F(Scalecom, RoundsOfAStepThatIsOverAreForgotten) {
  for (const bool counts : {true, false}) {
    ASSERT_TRUE(other_->adopt(0, offer(*leader_, 0, values_)));
    ASSERT_TRUE(other_->adopt(1, offer(*other_, 1, others_)));
    counts ? other_->commit() : other_->rollback();
    std::vector<std::byte> payload(named_.codec->max_encoded_size(stream_));
    payload.resize(other_->encode({.values = others_}, {}, payload, {}).size);
    EXPECT_EQ(payload, encode(*named_.codec, stream_, others_));
    other_->rollback();
  }
}

TEST_F(Scalecom, HostilePositionsAreRefused) {
  const auto good = offer(*leader_, 0, values_);
  for (size_t size = 0; size < good.size(); size += 1 + size / 8)
    EXPECT_FALSE(other_->adopt(0, std::span(good).first(size))) << size;
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(other_->adopt(0, longer));
  const NamedCodec denser = make_codec("scalecom:density=0.0101").value();
  const auto keeps_more = denser.codec->make_encoder(stream_);
  std::vector<std::byte> more(denser.codec->rounds(stream_, false)[0].size);
  more.resize(keeps_more->offer(0, {.values = values_}, {}, more));
  EXPECT_TRUE(keeps_more->adopt(0, more));
  EXPECT_FALSE(other_->adopt(0, more));  // 202 where k is 200
  // Any other bytes give positions in the stream, or none.
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    auto bytes = good;
    const auto words = random_block({.use = RandomUse::kTest, .step = trial}, 0);
    bytes[4 + words[0] % (bytes.size() - 4)] ^= static_cast<std::byte>(1 + words[1] % 255);
    if (other_->adopt(0, bytes)) {
      EXPECT_EQ(offer(*other_, 1, others_).size(), 4 * kCount / 100);
    }
    other_->rollback();
  }
}

}  // namespace
}  // namespace thinwire
