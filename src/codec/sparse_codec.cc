// Shared by sparse codecs: options, the target and limits of kept values, and the decoder.
// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codec/checked_add.h"

namespace thinwire {
namespace {

class SparseDecoder final : public Decoder {
 public:
  SparseDecoder(ValueFormat format, size_t count) : format_(format), count_(count) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "sparse payload", payload, weight, out);
    return add_sparse(payload, format_, weight, out);
  }

  Status visit(std::span<const std::byte> payload, const KeptVisitor& visitor) const override {
    return visit_sparse(payload, format_, count_, visitor);
  }

 private:
  ValueFormat format_;
  size_t count_;
};

}  // namespace

OptionInfo density_option() {
  return {.name = "density",
          .type = OptionType::kNumber,
          .fallback = "0.01",
          .min = 1e-6,
          .max = 1,
          .unit = "fraction",
          .help = "values to keep"};
}

size_t kept_target(double density, size_t count) noexcept {
  const auto wanted = static_cast<size_t>(std::llround(density * static_cast<double>(count)));
  return std::min(count, std::max<size_t>(wanted, 1));
}

OptionInfo cap_option() {
  return {.name = "cap",
          .type = OptionType::kNumber,
          .fallback = "4",
          .min = 0,
          .max = 1e6,
          .unit = "targets",
          .help = "keeps at most so many, the largest; below 1: no limit"};
}

size_t kept_limit(double cap, size_t target, size_t count) noexcept {
  const double limit = cap * static_cast<double>(target);
  return cap < 1 || limit >= static_cast<double>(count) ? count : static_cast<size_t>(limit);
}

float just_below(float magnitude) noexcept {
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  return bits == 0 ? 0.0f : std::bit_cast<float>(bits - 1);
}

float to_threshold(double threshold) noexcept {
  if (threshold >= std::numeric_limits<float>::max()) return std::numeric_limits<float>::max();
  const auto rounded = static_cast<float>(threshold);
  return rounded > threshold ? std::nextafter(rounded, 0.0f) : rounded;
}

size_t write_list(ExceedanceList& list, ValueFormat format, std::span<std::byte> out,
                  std::span<float> rest) {
  const bool exact = format == ValueFormat::kFp32;
  const size_t size = write_sparse(list.positions(), list.values(), format, out,
                                   exact ? std::span<float>() : list.values());
  if (!exact && !rest.empty())
    for (size_t i = 0; i < list.size(); ++i) rest[list.positions()[i]] = list.values()[i];
  return size;
}

size_t SparseCodec::max_encoded_size(const StreamSpec& stream) const {
  require_sparse_stream(info_.name, stream);
  return max_sparse_size(stream.count(), most_kept(stream.count()), format());
}

std::unique_ptr<Encoder> SparseCodec::make_encoder(const StreamSpec& stream) const {
  require_sparse_stream(info_.name, stream);
  return encoder_of(stream.count());
}

std::unique_ptr<const Decoder> SparseCodec::make_decoder(const StreamSpec& stream) const {
  require_sparse_stream(info_.name, stream);
  return std::make_unique<SparseDecoder>(format(), stream.count());
}

}  // namespace thinwire
