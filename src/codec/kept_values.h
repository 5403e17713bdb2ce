// The formats in which a sparsifier's kept values are sent: the option `values`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "thinwire/codec.h"
#include "thinwire/options.h"

namespace thinwire {

//   fp32 fp16 bf16   one after another; beyond the largest of a 16-bit format they are that one
//   int8   per block of 512 values, the last may be shorter:
//            f32 scale     >= 0, and 127 x scale is finite
//            i8  q[]       -127 to 127; decoded: q x scale
//   int2   per block of 512 values, the last may be shorter:
//            f32 low       >= 0: the mean of the magnitudes up to the block's mean magnitude
//            f32 high      >= low: the mean of the others; low if there are none
//            u2  codes[]   from the lowest bits up, unused bits 0; bit 0: high, bit 1: negative
//   sign   f32 mean      >= 0: of the magnitudes; nothing if there are no values
//          u8  signs[]   ceil(kept / 8) bytes from the lowest bit up, 1 = negative, unused bits 0
//   mean   f32 mean      of the values; nothing if there are none
//
// All decoded values are finite.

// The option `values=fp32|fp16|bf16|int8|int2|sign` that sparsifiers share, and its value.
OptionInfo value_format_option();
ValueFormat value_format(const Options& options);

// Values that are written and read at once.
inline constexpr size_t kValueBlock = 512;

// Bytes of `kept` values.
size_t value_bytes(ValueFormat format, size_t kept) noexcept;

// The mean that `sign` and `mean` send, summed in double one by one, of at(0) .. at(kept - 1). 0
// for other formats, which need none.
template <typename At>
float sent_mean(ValueFormat format, size_t kept, At at) {
  if (kept == 0 || (format != ValueFormat::kSign && format != ValueFormat::kMean)) return 0;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double value = at(i);
    sum += format == ValueFormat::kSign && value < 0 ? -value : value;
  }
  return static_cast<float>(sum / static_cast<double>(kept));
}

// Writes values block by block.
class ValueWriter {
 public:
  // REQUIRES: bytes.size() == value_bytes(format, number of values); `mean` as sent_mean says.
  ValueWriter(ValueFormat format, float mean, std::span<std::byte> bytes) noexcept;

  // The next block, full unless it is the last. A non-empty `left`, as long as `values` and perhaps
  // the same, receives values - decoded. REQUIRES: finite values.
  void write(std::span<const float> values, std::span<float> left) noexcept;

 private:
  ValueFormat format_;
  float mean_;
  std::span<std::byte> bytes_;
};

// Reads them back. `bytes` may hold anything.
class ValueReader {
 public:
  // REQUIRES: bytes.size() == value_bytes(format, number of values).
  ValueReader(ValueFormat format, std::span<const std::byte> bytes) noexcept;

  // The next block.
  void read(std::span<float> out) noexcept;

  // No value was infinite or NaN, and no rule broken, in what was read.
  bool good() const noexcept { return good_; }

 private:
  ValueFormat format_;
  float mean_ = 0;
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

}  // namespace thinwire
