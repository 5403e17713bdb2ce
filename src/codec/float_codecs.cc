// fp32, fp16 and bf16: every value on its own, as a float of four or two bytes.
//
//   fp32  as it is: the exact baseline, and what small tensors travel in
//   fp16  IEEE binary16: 11 bits of precision, up to 65504, steps of 2^-24 near zero
//   bf16  the upper half of an fp32: 8 bits of precision, the range of fp32
//
// The two short ones round to nearest, ties to even. A value that rounds beyond the largest finite
// one becomes that one: the difference is left in `rest`, where an Inf would end the training.
//
// Payload: values[count], little endian, all finite. One pass over memory each way.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/device_codec.h"
#include "device/coded_values.h"
#include "kernel/add_floats.h"
#include "kernel/half_float.h"

namespace thinwire {
namespace {

void copy_floats(std::span<const float> values, std::span<std::byte> bytes,
                 std::span<float> rest) noexcept {
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size_bytes());
  std::fill(rest.begin(), rest.end(), 0.0f);
}

struct Format {
  CodecInfo info;
  size_t size;  // bytes per value
  void (*encode)(std::span<const float> values, std::span<std::byte> bytes,
                 std::span<float> rest) noexcept;
  bool (*decode_add)(std::span<const std::byte> bytes, float weight,
                     std::span<float> out) noexcept;  // false: not all finite
};

constexpr Format kFp32{.info = {.name = "fp32",
                                .id = 1,
                                .summary = "values as they are",
                                .unbiased = true,
                                .lossless = true,
                                .linear = true,
                                .fixed_size = true,
                                .block = 1},
                       .size = 4,
                       .encode = copy_floats,
                       .decode_add = kernel::add_floats};

constexpr Format kFp16{.info = {.name = "fp16",
                                .id = 2,
                                .summary = "IEEE half precision, saturating at 65504",
                                .linear = true,
                                .fixed_size = true,
                                .block = 1},
                       .size = 2,
                       .encode = kernel::to_half_saturated,
                       .decode_add = kernel::add_half};

constexpr Format kBf16{.info = {.name = "bf16",
                                .id = 3,
                                .summary = "the upper 16 bits of fp32, rounded",
                                .linear = true,
                                .fixed_size = true,
                                .block = 1},
                       .size = 2,
                       .encode = kernel::to_bfloat_saturated,
                       .decode_add = kernel::add_bfloat};

class FloatEncoder final : public Encoder {
 public:
  explicit FloatEncoder(const Format& format) : format_(format) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const size_t size = signal.values.size() * format_.size;
    format_.encode(signal.values, out.first(size), rest);
    return {.size = size, .kept = signal.values.size()};
  }

 private:
  const Format& format_;
};

class FloatDecoder final : public Decoder {
 public:
  explicit FloatDecoder(const Format& format) : format_(format) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, format_.info.name, payload, weight, out);
    if (payload.size() != out.size() * format_.size)
      return fail(ErrorCode::kBadLength, "payload length does not match the count");
    if (!format_.decode_add(payload, weight, out))
      return fail(ErrorCode::kCorrupt, "value is not finite");
    return Status::ok();
  }

 private:
  Status fail(ErrorCode code, const char* why) const {
    return Status::fail(code, std::string(format_.info.name) + ": " + why);
  }

  const Format& format_;
};

class FloatCodec final : public Codec {
 public:
  explicit FloatCodec(const Format& format) : format_(format) {}

  const CodecInfo& info() const noexcept override { return format_.info; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return stream.count() * format_.size;
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<FloatEncoder>(format_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<FloatDecoder>(format_);
  }

 private:
  const Format& format_;
};

CodecEntry make_entry(const Format& format) {
  return {.info = format.info, .options = {}, .make = [&format](const Options& /*options*/) {
            return std::make_unique<FloatCodec>(format);
          }};
}

// Of 16 bits: fp32 has nothing to make smaller.
BlockKernels kernels_of(device::Float16 format) {
  return {
      .size = [](const Part& part) { return 2 * part.count; },
      .encode = [=](auto& on, const Part& part, const Call& /*call*/, auto* values, auto* bytes,
                    auto* rest,
                    void*) { device::encode_floats(on, format, values, part.count, bytes, rest); },
      .add =
          [=](auto& on, const Part& part, auto* bytes, float weight, auto* out, auto* bad) {
            device::add_floats(on, format, bytes, part.count, weight, out, bad);
          }};
}

CodecEntry make_entry(const Format& format, device::Float16 on_device) {
  CodecEntry entry = make_entry(format);
  entry.on_device = [&format, on_device](const Options& /*options*/, SharedWork work) {
    return make_block_device_codec(std::make_unique<FloatCodec>(format), 1, std::move(work),
                                   [=](const StreamSpec&) { return kernels_of(on_device); });
  };
  return entry;
}

}  // namespace

const CodecEntry& fp32_entry() {
  static const CodecEntry entry = make_entry(kFp32);
  return entry;
}

const CodecEntry& fp16_entry() {
  static const CodecEntry entry = make_entry(kFp16, device::Float16::kHalf);
  return entry;
}

const CodecEntry& bf16_entry() {
  static const CodecEntry entry = make_entry(kBf16, device::Float16::kBfloat);
  return entry;
}

}  // namespace thinwire
