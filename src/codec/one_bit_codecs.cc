// sign and onebit: one bit per value and the levels that bits stand for. Biased: do not use them
// without feedback.
//
//   decode(encode(x))[i] = high if x[i] >= 0, else low
//   sign    high = mean of |x|, low = -high             [Karimireddy et al., ICML 2019]
//   onebit  high = mean of those x that are at least 0, low = mean of the others
//                                                       [Seide et al., Interspeech 2014]
//
// Means are taken over a block of values or, with `block=tensor`, over a tensor as in EF-signSGD.
// No other levels give a smaller squared error. Seide et al. take them over columns of a matrix,
// which for a convolution would cost more than the bits; blocks here are consecutive values.
//
// 0 has no sign that a bit can hold: it counts as not negative, -0 too, and arrives as `high`. What
// that adds to a vector of many zeros is for feedback to take back.
//
// Payload, per block or tensor (the last block may be shorter, a tensor without values has no
// bytes):
//
//   f32 high     at least +0
//   f32 low      at most 0; onebit only
//   u8  bits[]   1 = negative, from bit 0 up
//
// 1.125 bits per value at the default blocks of 256 and 512. Each value is read twice, the second
// time from cache unless it is a tensor that is longer, and `rest` is written once.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/decode_parts.h"
#include "codec/device_codec.h"
#include "device/coded_values.h"
#include "kernel/two_levels.h"

namespace thinwire {
namespace {

using kernel::LevelBlocks;
using kernel::LevelRule;

constexpr CodecInfo kSign{.name = "sign",
                          .id = 23,
                          .summary = "signs, and the mean magnitude of each block",
                          .paper = "EF-signSGD, ICML 2019, arXiv:1901.09847",
                          .fixed_size = true};

constexpr CodecInfo kOnebit{.name = "onebit",
                            .id = 24,
                            .summary = "signs, and the two means of each block",
                            .paper = "1-bit SGD, Interspeech 2014",
                            .fixed_size = true};

class LevelEncoder final : public Encoder {
 public:
  LevelEncoder(LevelRule rule, std::vector<Part> parts) : rule_(rule), parts_(std::move(parts)) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    size_t size = 0;
    for (const Part& part : parts_) {
      const LevelBlocks blocks{.block = part.block, .rule = rule_};
      const size_t part_size = blocks.size(part.count);
      kernel::encode_levels(signal.values.subspan(part.begin, part.count), blocks,
                            out.subspan(size, part_size),
                            rest.empty() ? rest : rest.subspan(part.begin, part.count));
      size += part_size;
    }
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  LevelRule rule_;
  std::vector<Part> parts_;
};

class LevelDecoder final : public Decoder {
 public:
  LevelDecoder(std::string_view name, LevelRule rule, std::vector<Part> parts)
      : name_(name), rule_(rule), parts_(std::move(parts)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, name_, payload, weight, out);
    return decode_parts(
        name_, parts_, payload, out,
        [this](const Part& part) { return LevelBlocks{.block = part.block, .rule = rule_}; },
        [weight](auto bytes, const LevelBlocks& blocks, std::span<float> of_part) {
          return kernel::add_levels(bytes, blocks, weight, of_part);
        },
        "level of the wrong sign or not finite");
  }

 private:
  std::string_view name_;
  LevelRule rule_;
  std::vector<Part> parts_;
};

class LevelCodec final : public Codec {
 public:
  LevelCodec(CodecInfo info, LevelRule rule, size_t block)
      : info_(info), rule_(rule), block_(block) {
    info_.block = block;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    size_t size = 0;
    for (const Part& part : parts_of(stream, block_))
      size += LevelBlocks{.block = part.block, .rule = rule_}.size(part.count);
    return size;
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<LevelEncoder>(rule_, parts_of(stream, block_));
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<LevelDecoder>(info_.name, rule_, parts_of(stream, block_));
  }

 private:
  CodecInfo info_;
  LevelRule rule_;
  size_t block_;
};

BlockKernels kernels_of(LevelRule rule) {
  const auto blocks_of = [=](const Part& part) {
    return LevelBlocks{.block = part.block, .rule = rule};
  };
  return {.size = [=](const Part& part) { return blocks_of(part).size(part.count); },
          .scratch =
              [=](const Part& part) {
                return device::level_scratch_bytes(part.count, blocks_of(part));
              },
          .encode =
              [=](auto& on, const Part& part, const Call& /*call*/, auto* values, auto* bytes,
                  auto* rest, void* scratch) {
                device::encode_levels(on, values, part.count, blocks_of(part), bytes, rest,
                                      scratch);
              },
          .add =
              [=](auto& on, const Part& part, auto* bytes, float weight, auto* out, auto* bad) {
                device::add_levels(on, bytes, part.count, blocks_of(part), weight, out, bad);
              }};
}

CodecEntry make_entry(const CodecInfo& info, LevelRule rule, OptionInfo block) {
  const auto make = [info, rule](const Options& options) -> std::unique_ptr<Codec> {
    return std::make_unique<LevelCodec>(info, rule, block_length(options));
  };
  return {.info = info,
          .options = {std::move(block)},
          .make = make,
          .on_device = [=](const Options& options, SharedWork work) {
            return make_block_device_codec(make(options), block_length(options), std::move(work),
                                           [=](const StreamSpec&) { return kernels_of(rule); });
          }};
}

}  // namespace

const CodecEntry& sign_entry() {
  static const CodecEntry entry = make_entry(
      kSign, LevelRule::kMagnitude, block_option("256", {"256", "1024", "4096", "tensor"}));
  return entry;
}

const CodecEntry& onebit_entry() {
  static const CodecEntry entry = make_entry(
      kOnebit, LevelRule::kMeans, block_option("512", {"512", "1024", "4096", "tensor"}));
  return entry;
}

}  // namespace thinwire
