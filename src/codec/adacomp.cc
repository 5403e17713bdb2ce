// AdaComp: each bin sends what comes close to its own largest magnitude [Chen et al., AAAI 2018].
//
//   G = values: residual + dW          H = G + (s - 1) dW,  dW = fresh
//   gmax_b = max of |G_i| over bin b   element i is sent iff |H_i| >= gmax_b and G_i != 0
//   scale = mean of gmax_b over the bins of a tensor
//   decoded: sign(G_i) scale where sent, else 0
//
// So every bin decides by itself how much it sends, and dW pointing the way of the residual is what
// makes an element pass. G_i = 0 has no sign to send, which also keeps bins of zeros silent: the
// paper's |H_i| >= gmax_b alone would send all of such a bin.
//
// Payload, per tensor of the stream in order; a tensor without values has no bytes:
//
//   f32 scale    finite, >= 0; if 0 the tensor is all zero and has no codes
//   codes[]      for every bin of L values in turn, the last bin may be shorter, either
//                  one per value sent: offset in the bin | negative << O | last of its bin << (O +
//                  1) one with all offset bits and the last bit set: nothing sent
//                L <= 63: u8, O = 6; L <= 16,383: u16, O = 14
//
// Without delimiters a tensor costs what the paper's rate counts, 8 or 16 bits per value sent, and
// one more code per empty bin. A value takes at most one code, so a tensor never takes more than
// 4 bytes plus half of its fp32 size: there is no need for a dense form to fall back to.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "codec/adacomp_parts.h"
#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "core/bytes.h"
#include "core/check.h"
#include "kernel/bin_codes.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "adacomp",
                          .id = 5,
                          .summary = "signs of what is near the largest of its bin, one scale",
                          .paper = "AdaComp, AAAI 2018, arXiv:1712.02679",
                          .selective = true,
                          .fresh = true};

constexpr OptionInfo kOptions[] = {
    {.name = "bin_convolution",
     .type = OptionType::kInteger,
     .fallback = "50",
     .min = 1,
     .max = kernel::kMaxBin,
     .unit = "values",
     .help = "bin length of convolutions; up to 63 values cost 8 bits each, longer bins 16"},
    {.name = "bin_linear",
     .type = OptionType::kInteger,
     .fallback = "500",
     .min = 1,
     .max = kernel::kMaxBin,
     .unit = "values",
     .help = "bin length of all other tensors"},
    {.name = "scale_factor",
     .type = OptionType::kNumber,
     .fallback = "2",
     .min = 1,
     .max = 100,
     .help = "s: 1 sends one value per bin, larger s more; 1.5 to 3 are usual"},
};

class AdaCompEncoder final : public Encoder {
 public:
  AdaCompEncoder(BinParts parts, float factor) : parts_(std::move(parts)), factor_(factor) {
    for (const BinPart& part : parts_) count_ += part.count;
  }

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    const auto fresh = signal.fresh.empty() ? values : signal.fresh;
    THINWIRE_CHECK(values.size() == count_ && fresh.size() == count_,
                   "adacomp: values or fresh are not as many as the stream has");
    if (!rest.empty() && rest.data() != values.data())
      std::copy(values.begin(), values.end(), rest.begin());
    Encoded encoded;
    size_t begin = 0;
    for (const BinPart& part : parts_) {
      if (part.count == 0) continue;
      const auto codes = out.subspan(encoded.size + sizeof(float), part.max_code_size());
      auto sent = kernel::select_bins(values.subspan(begin, part.count),
                                      fresh.subspan(begin, part.count), factor_, part.bin, codes);
      const float scale = bin_scale(sent.max_sum, part);
      if (scale == 0) sent = {};  // all zero, or too small for a mean
      ByteWriter(out.subspan(encoded.size)).put(scale);
      // The scale is known only now: take it off where the codes say, as the decoder will.
      if (!rest.empty() && sent.kept > 0)
        kernel::add_bins(codes.first(sent.size), part.bin, -scale, rest.subspan(begin, part.count));
      encoded.size += sizeof(float) + sent.size;
      encoded.kept += sent.kept;
      begin += part.count;
    }
    return encoded;
  }

 private:
  BinParts parts_;
  size_t count_ = 0;
  float factor_;  // s - 1
};

class AdaCompDecoder final : public Decoder {
 public:
  explicit AdaCompDecoder(BinParts parts) : parts_(std::move(parts)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "adacomp", payload, weight, out);
    size_t begin = 0;
    for (const BinPart& part : parts_) {
      if (part.count == 0) continue;
      ByteReader reader(payload);
      const auto scale = reader.get<float>();
      if (!reader.ok()) return Status::fail(ErrorCode::kBadLength, "adacomp: no scale");
      if (!std::isfinite(scale) || std::signbit(scale))
        return Status::fail(ErrorCode::kCorrupt, "adacomp: scale is negative or not finite");
      payload = payload.subspan(sizeof(float));
      if (scale > 0) {
        const auto size =
            kernel::add_bins(payload, part.bin, weight * scale, out.subspan(begin, part.count));
        if (!size) return Status::fail(ErrorCode::kCorrupt, "adacomp: codes break a rule");
        payload = payload.subspan(*size);
      }
      begin += part.count;
    }
    if (!payload.empty())
      return Status::fail(ErrorCode::kBadLength, "adacomp: bytes after the last bin");
    return Status::ok();
  }

 private:
  BinParts parts_;
};

class AdaCompCodec final : public Codec {
 public:
  explicit AdaCompCodec(const Options& options)
      : bin_convolution_(static_cast<size_t>(options.integer("bin_convolution"))),
        bin_linear_(static_cast<size_t>(options.integer("bin_linear"))),
        factor_(static_cast<float>(options.number("scale_factor") - 1)) {}

  const CodecInfo& info() const noexcept override { return kInfo; }

  size_t max_encoded_size(const StreamSpec& stream) const override {
    size_t size = 0;
    for (const BinPart& part : parts_of(stream))
      size += part.count == 0 ? 0 : sizeof(float) + part.max_code_size();
    return size;
  }

  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<AdaCompEncoder>(parts_of(stream), factor_);
  }

  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<AdaCompDecoder>(parts_of(stream));
  }

 private:
  BinParts parts_of(const StreamSpec& stream) const {
    return bin_parts(stream, bin_convolution_, bin_linear_);
  }

  size_t bin_convolution_;
  size_t bin_linear_;
  float factor_;
};

std::unique_ptr<Codec> make_on_device(const Options& options, SharedWork work) {
  return make_adacomp_device_codec(
      std::make_unique<AdaCompCodec>(options), std::move(work),
      static_cast<float>(options.number("scale_factor") - 1),
      [convolution = static_cast<size_t>(options.integer("bin_convolution")),
       linear = static_cast<size_t>(options.integer("bin_linear"))](const StreamSpec& stream) {
        return bin_parts(stream, convolution, linear);
      });
}

}  // namespace

const CodecEntry& adacomp_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {std::begin(kOptions), std::end(kOptions)},
      .make = [](const Options& options) { return std::make_unique<AdaCompCodec>(options); },
      .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
