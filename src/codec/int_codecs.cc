// int8 and int4: every value rounded to a whole multiple of its block's scale. Biased: rounding is
// to nearest, so that feedback has as little to carry as these bits allow.
//
//   decode(encode(x))[i] = c s     s = max |x| / m over the block that holds x[i], m = 127 or 7
//                                  c = x[i] / s rounded to nearest, -m to m
//
// Symmetric: zero stays zero, and -x is coded as x is. The error is at most s / 2 but for rounding
// in fp32 (kernel/scaled_blocks.h). A block all of whose magnitudes are below m 2^-126 becomes
// zeros.
//
// Payload, per block of `block` values (the last may be shorter):
//
//   f32 s        at least +0; m s is finite
//       codes    two's complement, 8 or 4 bits each, from bit 0 up; c = -m - 1 does not occur
//
// A part of a stream that starts at a multiple of the block has the bytes that it has in the whole.
// At the default block of 256 values take 8.125 and 4.125 bits. Each value is read twice, the
// second time from cache, and `rest` is written once.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/device_codec.h"
#include "device/coded_values.h"
#include "kernel/scaled_blocks.h"

namespace thinwire {
namespace {

using kernel::ScaledBlocks;

constexpr CodecInfo kInt8{
    .name = "int8", .id = 17, .summary = "8 bits, a scale per block", .fixed_size = true};

constexpr CodecInfo kInt4{
    .name = "int4", .id = 18, .summary = "4 bits, a scale per block", .fixed_size = true};

class IntEncoder final : public Encoder {
 public:
  explicit IntEncoder(ScaledBlocks blocks) : blocks_(blocks) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const size_t size = blocks_.size(signal.values.size());
    kernel::quantise_blocks(signal.values, blocks_, out.first(size), rest);
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  ScaledBlocks blocks_;
};

class IntDecoder final : public Decoder {
 public:
  IntDecoder(std::string_view name, ScaledBlocks blocks) : name_(name), blocks_(blocks) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, name_, payload, weight, out);
    if (payload.size() != blocks_.size(out.size()))
      return Status::fail(ErrorCode::kBadLength,
                          std::string(name_) + ": payload length does not match the count");
    if (!kernel::add_blocks(payload, blocks_, weight, out))
      return Status::fail(ErrorCode::kCorrupt, std::string(name_) + ": scale or code out of range");
    return Status::ok();
  }

 private:
  std::string_view name_;
  ScaledBlocks blocks_;
};

class IntCodec final : public Codec {
 public:
  IntCodec(CodecInfo info, ScaledBlocks blocks) : info_(info), blocks_(blocks) {
    info_.block = blocks.block;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return blocks_.size(stream.count());
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<IntEncoder>(blocks_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<IntDecoder>(info_.name, blocks_);
  }

 private:
  CodecInfo info_;
  ScaledBlocks blocks_;
};

BlockKernels kernels_of(const ScaledBlocks& blocks) {
  return {.size = [=](const Part& part) { return blocks.size(part.count); },
          .encode =
              [=](auto& on, const Part& part, const Call& /*call*/, auto* values, auto* bytes,
                  auto* rest,
                  void*) { device::quantise_blocks(on, values, part.count, blocks, bytes, rest); },
          .add =
              [=](auto& on, const Part& part, auto* bytes, float weight, auto* out, auto* bad) {
                device::add_blocks(on, bytes, part.count, blocks, weight, out, bad);
              }};
}

CodecEntry make_entry(const CodecInfo& info, size_t bits) {
  const auto make = [info, bits](const Options& options) -> std::unique_ptr<Codec> {
    return std::make_unique<IntCodec>(info, ScaledBlocks{block_length(options), bits});
  };
  return {.info = info,
          .options = {block_option("256")},
          .make = make,
          .on_device = [=](const Options& options, SharedWork work) {
            const ScaledBlocks blocks{block_length(options), bits};
            return make_block_device_codec(make(options), blocks.block, std::move(work),
                                           [=](const StreamSpec&) { return kernels_of(blocks); });
          }};
}

}  // namespace

const CodecEntry& int8_entry() {
  static const CodecEntry entry = make_entry(kInt8, 8);
  return entry;
}

const CodecEntry& int4_entry() {
  static const CodecEntry entry = make_entry(kInt4, 4);
  return entry;
}

}  // namespace thinwire
