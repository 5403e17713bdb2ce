// For tests: two small codecs that work in blocks: one biased, one with random draws.
//
//   decode(encode(x))[i] = s q[i],   s = largest |x| of the block / 127,   q[i] = round(x[i] / s)
//
// "test-nearest" rounds to the nearest, "test-dither" up or down by chance, from a draw of its own
// for every sender, step and position in the stream. Blocks of 24 values: no power of two.
//
// Payload, per block: f32 s, then i8 q[].
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "thinwire/codec.h"

namespace thinwire::testing {

inline constexpr size_t kTestBlock = 24;

class BlockEncoder final : public Encoder {
 public:
  explicit BlockEncoder(bool dither) : dither_(dither) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    ByteWriter writer(out);
    const RandomKey key{.seed = call.seed + call.salt, .use = RandomUse::kTest, .step = call.step};
    const auto values = signal.values;
    for (size_t begin = 0; begin < values.size(); begin += kTestBlock) {
      const size_t count = std::min(kTestBlock, values.size() - begin);
      float largest = 0;
      for (const float x : values.subspan(begin, count)) largest = std::max(largest, std::abs(x));
      const float step = largest / 127;
      writer.put(step);
      for (size_t i = begin; i < begin + count; ++i) {
        const float scaled = step > 0 ? values[i] / step : 0;
        const float draw = dither_ ? random_unit(key, call.offset + i) : 0.5f;
        const auto q = static_cast<int8_t>(std::clamp(std::floor(scaled + draw), -127.0f, 127.0f));
        writer.put(q);
        if (!rest.empty()) rest[i] = values[i] - step * static_cast<float>(q);
      }
    }
    return {.size = writer.written(), .kept = values.size()};
  }

 private:
  bool dither_;
};

class BlockDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    ByteReader reader(payload);
    for (size_t i = 0; i < out.size();) {
      const float step = reader.get<float>();
      if (!std::isfinite(step)) return Status::fail(ErrorCode::kCorrupt, "test: step");
      const size_t end = std::min(i + kTestBlock, out.size());
      for (; i < end; ++i) out[i] += weight * (step * static_cast<float>(reader.get<int8_t>()));
    }
    if (!reader.ok() || reader.remaining() != 0)
      return Status::fail(ErrorCode::kBadLength, "test: length");
    return Status::ok();
  }
};

class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(const CodecInfo& info) : info_(info) {}

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    const size_t count = stream.count();
    return count + (count + kTestBlock - 1) / kTestBlock * sizeof(float);
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<BlockEncoder>(info_.unbiased);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<BlockDecoder>();
  }

 private:
  const CodecInfo info_;
};

inline CodecEntry block_codec(std::string_view name, uint8_t id, bool unbiased) {
  const CodecInfo info{
      .name = name, .id = id, .unbiased = unbiased, .fixed_size = true, .block = kTestBlock};
  return {.info = info, .options = {}, .make = [info](const Options& /*options*/) {
            return std::make_unique<BlockCodec>(info);
          }};
}

}  // namespace thinwire::testing
