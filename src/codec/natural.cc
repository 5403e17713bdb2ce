// natural: sign and exponent, the mantissa rounded away at random [Horvath et al., MSML 2022].
//
//   2^e <= |x| <= 2^(e+1):  decode(encode(x)) = sign(x) 2^(e+1) with probability |x| / 2^e - 1,
//                                               sign(x) 2^e otherwise
//
// Unbiased, and the variance is at most x^2 / 8 whatever the range of the values is: there is no
// scale that an outlier could spoil. Nine bits a value. Magnitudes below 2^-126, the subnormals,
// take 0 and 2^-126 for powers; those above 2^127 become 2^127.
//
// Payload, per 8 values (fewer at the end take fewer exponents):
//
//   u8 exponent[8]   as in fp32; 255 does not occur
//   u8 signs         1 = negative, from bit 0 up
//
// One pass over memory each way.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "kernel/power_codes.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "natural",
                          .id = 22,
                          .summary = "signs and exponents, at random",
                          .paper = "Natural Compression, MSML 2022, arXiv:1905.10988",
                          .unbiased = true,
                          .fixed_size = true,
                          .block = 8};

class NaturalEncoder final : public Encoder {
 public:
  explicit NaturalEncoder(std::string name) : name_(std::move(name)) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    const size_t size = kernel::power_bytes(signal.values.size());
    kernel::round_to_powers(signal.values,
                            {.key = codec_random_key(call, name_), .position = call.offset},
                            out.first(size), rest);
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  std::string name_;
};

class NaturalDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "natural", payload, weight, out);
    if (payload.size() != kernel::power_bytes(out.size()))
      return Status::fail(ErrorCode::kBadLength,
                          "natural: payload length does not match the count");
    if (!kernel::add_powers(payload, weight, out))
      return Status::fail(ErrorCode::kCorrupt, "natural: value is not finite");
    return Status::ok();
  }
};

class NaturalCodec final : public Codec {
 public:
  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return kernel::power_bytes(stream.count());
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<NaturalEncoder>(stream.name);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<NaturalDecoder>();
  }
};

}  // namespace

const CodecEntry& natural_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = {}, .make = [](const Options& /*options*/) {
        return std::make_unique<NaturalCodec>();
      }};
  return entry;
}

}  // namespace thinwire
