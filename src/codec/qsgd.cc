// qsgd: s levels on either side of zero, at random and unbiased [Alistarh et al., NIPS 2017].
//
//   S = max |x| over a bucket (norm=max, as in the paper's experiments) or its l2 norm (norm=l2)
//   t = s x[i] / S
//   decode(encode(x))[i] = floor(t + u) S / s,  u uniform in [0, 1)
//
// Rounding t itself is rounding |t| up with probability |t| - floor |t|, the paper's rule, with the
// sign put back: both choose between the same two levels with the same odds.
//
// With norm=max an error is at most S / s. With norm=l2 the expected number of levels that are not
// 0 is at most s (s + sqrt(bucket)), few enough for coding=elias: gaps, signs and magnitudes in the
// gamma code, which for numbers below 128 is no longer than the paper's recursive one.
//
// Payload, per bucket of `block` values (the last may be shorter):
//
//   f32 scale    S / s, at least +0; scale x m finite, m = 2^(k-1) - 1, k bits hold -s to s
//       codes    fixed: two's complement, k bits each, from bit 0 up; elias: elias_levels.h
//
// A bucket of zeros, or with a scale below 2^-126, arrives as zeros.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "codec/elias_levels.h"
#include "codec/grid_codec.h"
#include "core/bytes.h"

namespace thinwire {
namespace {

using kernel::GridBlocks;

constexpr CodecInfo kInfo{.name = "qsgd",
                          .id = 20,
                          .summary = "s levels per sign, at random",
                          .paper = "QSGD, NIPS 2017, arXiv:1610.02132",
                          .unbiased = true};

constexpr size_t kLongest = 4096;  // bucket

// Calls body(first, length) for each bucket of `count` values until it returns false.
template <typename Body>
bool for_buckets(size_t count, size_t bucket, const Body& body) {
  for (size_t begin = 0; begin < count; begin += bucket)
    if (!body(begin, std::min(bucket, count - begin))) return false;
  return true;
}

class EliasEncoder final : public Encoder {
 public:
  EliasEncoder(const GridBlocks& blocks, std::string name)
      : blocks_(blocks), name_(std::move(name)) {}

  // The kernel rounds a bucket into codes of whole bits, which then are coded again.
  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    kernel::Dither dither{.key = codec_random_key(call, name_)};
    std::array<std::byte, sizeof(float) + kLongest> grid;
    std::array<uint8_t, kLongest> codes;
    Encoded encoded;
    for_buckets(signal.values.size(), blocks_.block, [&](size_t begin, size_t count) {
      dither.position = call.offset + begin;
      const auto bytes = std::span(grid).first(blocks_.size(count));
      kernel::quantise_grid(signal.values.subspan(begin, count), blocks_, &dither, bytes,
                            rest.empty() ? rest : rest.subspan(begin, count));
      kernel::unpack_codes(bytes.subspan(sizeof(float)), blocks_.bits,
                           std::span(codes).first(count));
      ByteWriter(out.subspan(encoded.size)).put_bytes(bytes.first(sizeof(float)));
      encoded.size += sizeof(float);
      const EliasSize written =
          write_elias(std::span(codes).first(count), blocks_.bits, out.subspan(encoded.size));
      encoded.size += written.size;
      encoded.kept += written.kept;
      return true;
    });
    return encoded;
  }

 private:
  GridBlocks blocks_;
  std::string name_;
};

class EliasDecoder final : public Decoder {
 public:
  explicit EliasDecoder(const GridBlocks& blocks) : blocks_(blocks) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "qsgd", payload, weight, out);
    const auto most_code = static_cast<float>((1 << (blocks_.bits - 1)) - 1);
    const bool ok = for_buckets(out.size(), blocks_.block, [&](size_t begin, size_t count) {
      ByteReader reader(payload);
      const auto scale = reader.get<float>();
      if (!reader.ok() || std::signbit(scale) || !std::isfinite(scale * most_code)) return false;
      payload = payload.subspan(sizeof(float));
      const auto size = add_elias(payload, static_cast<unsigned>(blocks_.levels), weight * scale,
                                  out.subspan(begin, count));
      if (size) payload = payload.subspan(*size);
      return size.has_value();
    });
    if (!ok) return Status::fail(ErrorCode::kCorrupt, "qsgd: scale or levels break a rule");
    if (!payload.empty())
      return Status::fail(ErrorCode::kBadLength, "qsgd: bytes after the last bucket");
    return Status::ok();
  }

 private:
  GridBlocks blocks_;
};

class EliasCodec final : public Codec {
 public:
  explicit EliasCodec(const GridBlocks& blocks) : info_(kInfo), blocks_(blocks) {
    info_.block = blocks.block;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    size_t size = 0;
    for_buckets(stream.count(), blocks_.block, [&](size_t /*begin*/, size_t count) {
      size += sizeof(float) + max_elias_size(count, static_cast<unsigned>(blocks_.levels));
      return true;
    });
    return size;
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<EliasEncoder>(blocks_, stream.name);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<EliasDecoder>(blocks_);
  }

 private:
  CodecInfo info_;
  GridBlocks blocks_;
};

GridBlocks blocks_of(const Options& options) {
  const auto levels = static_cast<unsigned>(options.integer("levels"));
  const bool l2 = options.text("norm") == "l2";
  return {.block = block_length(options),
          .bits = static_cast<size_t>(std::bit_width(levels)) + 1,
          .rule = l2 ? kernel::GridRule::kNorm : kernel::GridRule::kMax,
          .levels = static_cast<float>(levels)};
}

std::unique_ptr<Codec> make(const Options& options) {
  const GridBlocks blocks = blocks_of(options);
  if (options.text("coding") == "elias") return std::make_unique<EliasCodec>(blocks);
  return make_grid_codec(kInfo, blocks, true);
}

std::unique_ptr<Codec> make_on_device(const Options& options, SharedWork work) {
  if (options.text("coding") == "elias" || options.text("norm") == "l2") return nullptr;
  return make_grid_device_codec(kInfo, blocks_of(options), true, std::move(work));
}

}  // namespace

const CodecEntry& qsgd_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "levels",
                   .type = OptionType::kInteger,
                   .fallback = "7",
                   .min = 1,
                   .max = 127,
                   .unit = "levels",
                   .help = "s, per sign; 1, 7 and 127 take 2, 4 and 8 bits"},
                  block_option("512", {"64", "512", "4096"}),
                  {.name = "norm",
                   .type = OptionType::kChoice,
                   .fallback = "max",
                   .choices = {"max", "l2"},
                   .help = "what the levels are fractions of"},
                  {.name = "coding",
                   .type = OptionType::kChoice,
                   .fallback = "fixed",
                   .choices = {"fixed", "elias"},
                   .help = "elias is shorter where most levels are 0"}},
      .make = make,
      .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
