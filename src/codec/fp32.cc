// fp32: the values as they are, four bytes each. The exact baseline, and what small tensors travel
// in.
//
// Payload: f32 values[count], little endian, all finite.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/builtin.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "fp32",
                          .id = 1,
                          .summary = "values as they are",
                          .unbiased = true,
                          .lossless = true,
                          .linear = true,
                          .fixed_size = true,
                          .block = 1};

class Fp32Encoder final : public Encoder {
 public:
  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
    std::fill(rest.begin(), rest.end(), 0.0f);
    return {.size = values.size_bytes(), .kept = values.size()};
  }
};

class Fp32Decoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (payload.size() != out.size_bytes())
      return Status::fail(ErrorCode::kBadLength, "fp32: payload length does not match the count");
    bool finite = true;
    for (size_t i = 0; i < out.size(); ++i) {
      float value;
      std::memcpy(&value, payload.data() + i * sizeof value, sizeof value);
      finite &= std::isfinite(value);
      out[i] += weight * value;
    }
    return finite ? Status::ok() : Status::fail(ErrorCode::kCorrupt, "fp32: value is not finite");
  }
};

class Fp32Codec final : public Codec {
 public:
  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return stream.count() * sizeof(float);
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<Fp32Encoder>();
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<Fp32Decoder>();
  }
};

}  // namespace

const CodecEntry& fp32_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = {}, .make = [](const Options& /*options*/) {
        return std::make_unique<Fp32Codec>();
      }};
  return entry;
}

}  // namespace thinwire
