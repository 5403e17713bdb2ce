// Shared by codecs with sparse payloads: how many values to keep, and both ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "codec/exceedance_list.h"
#include "codec/sparse_payload.h"
#include "thinwire/codec.h"

namespace thinwire {

// The option `density`, and k, the number of values it asks for: density x count, rounded, halves
// up, but at least 1 (or tiny tensors would never be sent) and at most count.
OptionInfo density_option();
size_t kept_target(double density, size_t count) noexcept;

// The option `cap`, for methods whose threshold does not say how many pass, and the number it
// allows: floor(cap x target), or `count` if cap is below 1 or allows more.
OptionInfo cap_option();
size_t kept_limit(double cap, size_t target, size_t count) noexcept;

// The largest float below a magnitude: |x| > it is |x| >= the magnitude. 0 for 0, so that zeros
// never pass.
float just_below(float magnitude) noexcept;

// The largest float that is not above `threshold`, and finite: |x| > threshold and |x| > it are the
// same for floats. REQUIRES: 0 <= threshold.
float to_threshold(double threshold) noexcept;

// Writes what the list holds, and returns the bytes. `rest`, if not empty, has zeros there already
// and receives what the format loses. The list's values are gone afterwards.
size_t write_list(ExceedanceList& list, ValueFormat format, std::span<std::byte> out,
                  std::span<float> rest);

// A codec that sends a sparse payload of at most most_kept(count) values.
class SparseCodec : public Codec {
 public:
  const CodecInfo& info() const noexcept final { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const final;
  size_t target(const StreamSpec& stream) const final { return wanted(stream.count()); }
  size_t max_kept(const StreamSpec& stream) const final { return most_kept(stream.count()); }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const final;
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const final;

 protected:
  // `info` is the registry's, or another with strings that outlive the codec.
  SparseCodec(const CodecInfo& info, ValueFormat format) : info_(info) { info_.values = format; }

  ValueFormat format() const noexcept { return info_.values; }

 private:
  virtual size_t wanted(size_t count) const noexcept = 0;  // 0: no target
  virtual size_t most_kept(size_t count) const noexcept = 0;
  virtual std::unique_ptr<Encoder> encoder_of(size_t count) const = 0;

  CodecInfo info_;
};

// One whose options come to a Method. The Method says how many values should and may be kept, and
// encoders are made from it.
template <typename Method, typename MethodEncoder>
class MethodCodec final : public SparseCodec {
 public:
  MethodCodec(const CodecInfo& info, const Options& options, ValueFormat format)
      : SparseCodec(info, format), method_(options) {}

 private:
  size_t wanted(size_t count) const noexcept override { return method_.target(count); }
  size_t most_kept(size_t count) const noexcept override { return method_.most(count); }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    return std::make_unique<MethodEncoder>(method_, count, format());
  }

  Method method_;
};

}  // namespace thinwire
