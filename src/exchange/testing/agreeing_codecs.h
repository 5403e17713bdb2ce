// For tests: two small codecs whose ranks agree before they encode, on means or one rank's choice.
//
//   test-factors   decode(x)[i] = m_b + d_b t_i: m_b and d_b the means over a block of 24 values,
//                  and over ranks, of x and of (x - m_b) t; t_i is +1 or -1 in turn, another way
//                  round after every step that counts. Odd steps have d_b = 0 and one round less.
//   test-leader    the mean over ranks of the values at the positions where those of one rank
//                  exceed a quarter of the largest of them; a tenth of all at most
//
// Payloads: u8 turn, f32 m[], f32 d[]; and u32 k, u32 position[k], f32 value[k].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "exchange/testing/block_codecs.h"
#include "thinwire/codec.h"

namespace thinwire::testing {

inline size_t test_blocks(size_t count) { return (count + kTestBlock - 1) / kTestBlock; }
inline float test_sign(size_t i, bool turn) { return (i % 2 == 0) == turn ? 1.0f : -1.0f; }

inline void write_floats(std::span<const float> floats, std::span<std::byte> out) {
  ByteWriter(out).put_bytes(std::as_bytes(floats));
}
inline std::vector<float> read_floats(std::span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  ByteReader reader(bytes);
  for (float& value : floats) value = reader.get<float>();
  return floats;
}

class FactorsEncoder final : public Encoder {
 public:
  explicit FactorsEncoder(size_t count) : means_(test_blocks(count)), sides_(test_blocks(count)) {}

  size_t offer(size_t round, const Signal& signal, const Call& /*call*/,
               std::span<std::byte> out) override {
    std::vector<float> sums(means_.size());
    for (size_t b = 0; b < sums.size(); ++b) {
      const size_t begin = b * kTestBlock;
      const size_t end = std::min(begin + kTestBlock, signal.values.size());
      double sum = 0;
      for (size_t i = begin; i < end; ++i)
        sum += round == 0 ? signal.values[i] : (signal.values[i] - means_[b]) * test_sign(i, turn_);
      sums[b] = static_cast<float>(sum / static_cast<double>(end - begin));
    }
    write_floats(sums, out);
    return sums.size() * sizeof(float);
  }
  Status adopt(size_t round, std::span<const std::byte> combined) override {
    (round == 0 ? means_ : sides_) = read_floats(combined);
    agreed_ = true;
    return Status::ok();
  }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    if (!agreed_)
      for (const size_t round : {0, 1}) {
        if (round == 1 && call.step % 2 == 1) continue;
        std::vector<std::byte> own(means_.size() * sizeof(float));
        offer(round, signal, call, own);
        static_cast<void>(adopt(round, own));
      }
    ByteWriter writer(out);
    writer.put(static_cast<uint8_t>(turn_));
    writer.put_bytes(std::as_bytes(std::span(means_)));
    writer.put_bytes(std::as_bytes(std::span(sides_)));
    for (size_t i = 0; i < rest.size(); ++i)
      rest[i] = signal.values[i] -
                (means_[i / kTestBlock] + sides_[i / kTestBlock] * test_sign(i, turn_));
    return {.size = writer.written(), .kept = signal.values.size()};
  }

  void commit() override {
    turn_ = !turn_;
    rollback();
  }
  void rollback() override {
    agreed_ = false;
    std::fill(sides_.begin(), sides_.end(), 0.0f);
  }
  StateArrays save() const override {
    const int64_t turn[1] = {turn_};
    return {make_state("turn", turn, OnResize::kCopy)};
  }
  Status load(const StateArrays& arrays) override {
    int64_t turn[1] = {};
    if (Status status = copy_state(arrays, "turn", turn); !status) return status;
    turn_ = turn[0] != 0;
    rollback();
    return Status::ok();
  }

 private:
  std::vector<float> means_, sides_;
  bool turn_ = true;
  bool agreed_ = false;
};

class FactorsDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    const size_t blocks = test_blocks(out.size());
    if (payload.size() != 1 + 2 * blocks * sizeof(float))
      return Status::fail(ErrorCode::kBadLength, "test: length");
    const bool turn = payload[0] != std::byte{0};
    const auto floats = read_floats(payload.subspan(1));
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t b = i / kTestBlock;
      if (!std::isfinite(floats[b]) || !std::isfinite(floats[blocks + b]))
        return Status::fail(ErrorCode::kCorrupt, "test: not finite");
      out[i] += weight * (floats[b] + floats[blocks + b] * test_sign(i, turn));
    }
    return Status::ok();
  }
};

class FactorsCodec final : public Codec {
 public:
  static constexpr CodecInfo kInfo{
      .name = "test-factors", .id = 202, .fixed_size = true, .agreed = Agreed::kFactors};

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return 1 + 2 * test_blocks(stream.count()) * sizeof(float);
  }
  std::vector<Round> rounds(const StreamSpec& stream, bool odd_step) const override {
    const size_t size = test_blocks(stream.count()) * sizeof(float);
    return std::vector<Round>(odd_step ? 1 : 2, {.combine = Round::Combine::kMean, .size = size});
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<FactorsEncoder>(stream.count());
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<FactorsDecoder>();
  }
};

inline size_t test_kept(size_t count) { return (count + 9) / 10; }

class LeaderEncoder final : public Encoder {
 public:
  explicit LeaderEncoder(size_t count) : count_(count) {}

  size_t offer(size_t round, const Signal& signal, const Call& /*call*/,
               std::span<std::byte> out) override {
    ByteWriter writer(out);
    if (round == 0) {
      float largest = 0;
      for (const float x : signal.values) largest = std::max(largest, std::abs(x));
      for (uint32_t i = 0; i < count_ && writer.written() < 4 * test_kept(count_); ++i)
        if (std::abs(signal.values[i]) > largest / 4) writer.put(i);
      return writer.written();
    }
    for (const uint32_t at : positions_) writer.put(signal.values[at]);
    while (writer.written() < 4 * test_kept(count_)) writer.put(0.0f);
    return writer.written();
  }
  Status adopt(size_t round, std::span<const std::byte> combined) override {
    ByteReader reader(combined);
    if (round == 1) {
      values_ = read_floats(combined);
      values_.resize(positions_.size());
      return Status::ok();
    }
    agreed_ = true;
    positions_.clear();
    while (reader.remaining() > 0) {
      const auto at = reader.get<uint32_t>();
      if (!reader.ok() || at >= count_ || (!positions_.empty() && at <= positions_.back()))
        return Status::fail(ErrorCode::kCorrupt, "test: position");
      positions_.push_back(at);
    }
    return Status::ok();
  }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    if (!agreed_)
      for (const size_t round : {0, 1}) {
        std::vector<std::byte> own(4 * test_kept(count_));
        own.resize(offer(round, signal, call, own));
        static_cast<void>(adopt(round, own));
      }
    ByteWriter writer(out);
    writer.put(static_cast<uint32_t>(positions_.size()));
    writer.put_bytes(std::as_bytes(std::span(positions_)));
    writer.put_bytes(std::as_bytes(std::span(values_)));
    if (!rest.empty() && rest.data() != signal.values.data())
      std::copy(signal.values.begin(), signal.values.end(), rest.begin());
    if (!rest.empty())
      for (const uint32_t at : positions_) rest[at] = 0;
    return {.size = writer.written(), .kept = positions_.size(), .target = test_kept(count_)};
  }
  void commit() override { agreed_ = false; }
  void rollback() override { agreed_ = false; }

 private:
  size_t count_;
  std::vector<uint32_t> positions_;
  std::vector<float> values_;
  bool agreed_ = false;
};

class LeaderDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    ByteReader reader(payload);
    const auto kept = reader.get<uint32_t>();
    if (kept > out.size() || payload.size() != 4 + 8 * size_t{kept})
      return Status::fail(ErrorCode::kBadLength, "test: length");
    ByteReader positions(reader.take(4 * size_t{kept}));
    for (const float value : read_floats(reader.take(4 * size_t{kept}))) {
      const auto at = positions.get<uint32_t>();
      if (at >= out.size() || !std::isfinite(value))
        return Status::fail(ErrorCode::kCorrupt, "test: position or value");
      out[at] += weight * value;
    }
    return Status::ok();
  }
};

class LeaderCodec final : public Codec {
 public:
  static constexpr CodecInfo kInfo{.name = "test-leader", .id = 203, .agreed = Agreed::kPositions};

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return 4 + 8 * test_kept(stream.count());
  }
  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    const size_t size = 4 * test_kept(stream.count());
    return {{.combine = Round::Combine::kFromRoot, .size = size},
            {.combine = Round::Combine::kMean, .size = size}};
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<LeaderEncoder>(stream.count());
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<LeaderDecoder>();
  }
};

template <typename C>
CodecEntry agreeing_codec() {
  return {.info = C::kInfo, .options = {}, .make = [](const Options& /*options*/) {
            return std::make_unique<C>();
          }};
}

// The registry, with these two and those of block_codecs.h.
inline std::vector<const CodecEntry*> all_codecs() {
  static const bool registered = [] {
    register_codec(block_codec("test-nearest", 200, false));
    register_codec(block_codec("test-dither", 201, true));
    register_codec(agreeing_codec<FactorsCodec>());
    register_codec(agreeing_codec<LeaderCodec>());
    return true;
  }();
  static_cast<void>(registered);
  return list_codecs();
}

// Before the first test, so that each finds them by name, whichever ran before it.
inline const bool kTestCodecsAreThere = !all_codecs().empty();

}  // namespace thinwire::testing
