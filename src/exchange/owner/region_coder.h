// RegionCoder: encodes and decodes a region of sparse-reduce, as kept values with positions or as
// all values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "thinwire/codec.h"

namespace thinwire {

// Payloads are those of codec topk in a value format, whatever codec chose the values; past
// break-even, those of fp32, fp16 or bf16.
//
// Break-even is where the positions of what is kept cost more than the values that are not: at a
// density of 31/32 of fp32 values and 15/16 of 16-bit ones, where positions are a bitmap, a bit per
// value; earlier in regions of a few values, for the 8 bytes of a sparse payload's header. int8 and
// sign have none: bitmap and value are 9 and 2 bits, never more than 16.
//
// Offsets are those of values in the region, of which there are `count`.
class RegionCoder {
 public:
  // kMean becomes kSign: sums of values of one sign may have both.
  explicit RegionCoder(ValueFormat format);

  ValueFormat format() const noexcept { return format_; }
  uint8_t sparse_id() const noexcept { return sparse_id_; }  // wire ids of the two codecs
  uint8_t dense_id() const noexcept { return dense_id_; }    // sparse_id() if there is no other

  bool is_dense(size_t count, size_t kept) const noexcept;

  // Upper bound on the bytes of a payload that keeps at most so many.
  size_t max_size(size_t count, size_t kept) const noexcept;

  // values[i] at offsets[i]; dense if is_dense. `left` receives values - decoded, and may be
  // `values`. REQUIRES: offsets strictly ascending and below `count`; finite values.
  size_t write(size_t count, std::span<const uint32_t> offsets, std::span<const float> values,
               std::span<std::byte> out, std::span<float> left) const;

  // values[offsets[i]], of all values of the region. They receive values - decoded.
  size_t write_at(std::span<const uint32_t> offsets, std::span<float> values,
                  std::span<std::byte> out) const;

  // All values, dense. They receive values - decoded.
  size_t write_all(std::span<float> values, std::span<std::byte> out) const;

  // How many values a payload of codec `id` keeps, as far as it says. Any bytes may be given, also
  // to those below. REQUIRES: `id` is one of the two.
  size_t kept(uint8_t id, std::span<const std::byte> payload, size_t count) const noexcept;

  Status add(uint8_t id, std::span<const std::byte> payload, std::span<float> sum) const;
  Status visit(uint8_t id, std::span<const std::byte> payload, size_t count,
               const KeptVisitor& visitor) const;

 private:
  ValueFormat format_;
  uint8_t sparse_id_;
  uint8_t dense_id_;
  size_t width_ = 0;  // bytes of a value when dense; 0: never
  std::unique_ptr<Encoder> dense_encoder_;
  std::unique_ptr<const Decoder> dense_decoder_;
};

}  // namespace thinwire
