// GridCodec: encodes and decodes the blocks of a stream by the kernels of grid_blocks.h.
// SPDX-License-Identifier: Apache-2.0
#include "codec/grid_codec.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "codec/block_option.h"
#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "codec/decode_parts.h"
#include "core/bytes.h"
#include "device/coded_values.h"
#include "kernel/scaled_blocks.h"

namespace thinwire {
namespace {

using kernel::Dither;
using kernel::GridBlocks;
using kernel::GridRule;

GridBlocks blocks_of(GridBlocks blocks, const Part& part) {
  blocks.block = part.block;
  return blocks;
}

kernel::ScaledBlocks scaled(const GridBlocks& blocks) {
  return {.block = blocks.block, .bits = blocks.bits};
}

bool add(std::span<const std::byte> payload, const GridBlocks& blocks, float weight,
         std::span<float> out) {
  if (blocks.rule == GridRule::kMinMax || blocks.rule == GridRule::kHalf)
    return kernel::add_grid(payload, blocks, weight, out);
  return kernel::add_blocks(payload, scaled(blocks), weight, out);
}

// Scales of all parts, one for each block.
size_t scale_count(const GridBlocks& blocks, const std::vector<Part>& parts) {
  size_t count = 0;
  for (const Part& part : parts) count += blocks_of(blocks, part).count(part.count);
  return count;
}

class GridEncoder final : public Encoder {
 public:
  GridEncoder(const GridBlocks& blocks, bool random, const StreamSpec& stream)
      : blocks_(blocks),
        random_(random),
        name_(stream.name),
        parts_(parts_of(stream, blocks.block)),
        scales_(scale_count(blocks_, parts_)) {}

  // This rank's scales; all take the largest.
  size_t offer(size_t /*round*/, const Signal& signal, const Call& /*call*/,
               std::span<std::byte> out) override {
    for_scales([&](const Part& part, const GridBlocks& blocks, std::span<float> scales) {
      kernel::grid_scales(signal.values.subspan(part.begin, part.count), blocks, scales);
    });
    ByteWriter(out).put_bytes(std::as_bytes(std::span(scales_)));
    return scales_.size() * sizeof(float);
  }
  Status adopt(size_t /*round*/, std::span<const std::byte> combined) override {
    ByteReader reader(combined);
    for (float& scale : scales_) {
      scale = reader.get<float>();
      if (std::signbit(scale) || !std::isfinite(scale))
        return Status::fail(ErrorCode::kCorrupt, "terngrad: a shared scale is out of range");
    }
    agreed_ = true;
    return Status::ok();
  }
  void commit() override { agreed_ = false; }
  void rollback() override { agreed_ = false; }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    Dither dither;
    if (random_) dither.key = codec_random_key(call, name_);
    size_t size = 0;
    for_scales([&](const Part& part, const GridBlocks& blocks, std::span<const float> scales) {
      dither.position = call.offset + part.begin;
      kernel::quantise_grid(signal.values.subspan(part.begin, part.count), blocks,
                            random_ ? &dither : nullptr, out.subspan(size, blocks.size(part.count)),
                            rest.empty() ? rest : rest.subspan(part.begin, part.count),
                            agreed_ ? scales : std::span<const float>());
      size += blocks.size(part.count);
    });
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  // Calls body(part, its blocks, their scales) for each part.
  template <typename Body>
  void for_scales(const Body& body) {
    std::span<float> scales = scales_;
    for (const Part& part : parts_) {
      const GridBlocks blocks = blocks_of(blocks_, part);
      const size_t count = blocks.count(part.count);
      body(part, blocks, scales.first(count));
      scales = scales.subspan(count);
    }
  }

  GridBlocks blocks_;
  bool random_;
  std::string name_;
  std::vector<Part> parts_;
  std::vector<float> scales_;
  bool agreed_ = false;  // scales_ are those of all ranks
};

class GridDecoder final : public Decoder {
 public:
  GridDecoder(std::string_view name, const GridBlocks& blocks, const StreamSpec& stream)
      : name_(name), blocks_(blocks), parts_(parts_of(stream, blocks.block)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, name_, payload, weight, out);
    return decode_parts(
        name_, parts_, payload, out, [this](const Part& part) { return blocks_of(blocks_, part); },
        [weight](auto bytes, const GridBlocks& blocks, std::span<float> of_part) {
          return add(bytes, blocks, weight, of_part);
        },
        "scale or code out of range");
  }

 private:
  std::string_view name_;
  GridBlocks blocks_;
  std::vector<Part> parts_;
};

class GridCodec final : public Codec {
 public:
  GridCodec(const CodecInfo& info, const GridBlocks& blocks, bool random)
      : info_(info), blocks_(blocks), random_(random) {
    info_.block = blocks.block;
    info_.fixed_size = true;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    size_t size = 0;
    for (const Part& part : parts_of(stream, blocks_.block))
      size += blocks_of(blocks_, part).size(part.count);
    return size;
  }
  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    if (info_.agreed == Agreed::kNothing) return {};
    const size_t count = scale_count(blocks_, parts_of(stream, blocks_.block));
    return {{.combine = Round::Combine::kMax, .size = count * sizeof(float)}};
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<GridEncoder>(blocks_, random_, stream);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<GridDecoder>(info_.name, blocks_, stream);
  }

 private:
  CodecInfo info_;
  GridBlocks blocks_;
  bool random_;
};

BlockKernels kernels_of(const GridBlocks& of_codec, bool random, const std::string& stream) {
  return {.size = [=](const Part& part) { return blocks_of(of_codec, part).size(part.count); },
          .scratch =
              [=](const Part& part) {
                return device::grid_scratch_bytes(part.count, blocks_of(of_codec, part));
              },
          .encode =
              [=](auto& on, const Part& part, const Call& call, auto* values, auto* bytes,
                  auto* rest, void* scratch) {
                const Dither dither{.key = codec_random_key(call, stream),
                                    .position = call.offset + part.begin};
                device::quantise_grid(on, values, part.count, blocks_of(of_codec, part),
                                      random ? &dither : nullptr, bytes, rest, scratch);
              },
          .add =
              [=](auto& on, const Part& part, auto* bytes, float weight, auto* out, auto* bad) {
                const GridBlocks blocks = blocks_of(of_codec, part);
                if (blocks.rule == GridRule::kMinMax)
                  device::add_grid(on, bytes, part.count, blocks, weight, out, bad);
                else
                  device::add_blocks(on, bytes, part.count, scaled(blocks), weight, out, bad);
              }};
}

}  // namespace

std::unique_ptr<Codec> make_grid_device_codec(const CodecInfo& info, const GridBlocks& blocks,
                                              bool random, SharedWork work) {
  return make_block_device_codec(
      make_grid_codec(info, blocks, random), blocks.block, std::move(work),
      [=](const StreamSpec& stream) { return kernels_of(blocks, random, stream.name); });
}

std::unique_ptr<Codec> make_grid_codec(const CodecInfo& info, const GridBlocks& blocks,
                                       bool random) {
  return std::make_unique<GridCodec>(info, blocks, random);
}

OptionInfo rounding_option() {
  return {.name = "rounding",
          .type = OptionType::kChoice,
          .fallback = "nearest",
          .choices = {"nearest", "random"},
          .help = "random rounding is unbiased and needs no memory"};
}

bool random_rounding(const Options& options) { return options.text("rounding") == "random"; }

}  // namespace thinwire
