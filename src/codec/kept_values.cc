// Writes and reads kept values in each of their formats, a block at a time.
// SPDX-License-Identifier: Apache-2.0
#include "codec/kept_values.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/bytes.h"
#include "kernel/half_float.h"

namespace thinwire {
namespace {

constexpr float kLevels = 127;  // of int8, to each side of 0

bool all_finite(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  return largest < std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity());
}

// The least scale whose levels reach the largest magnitude, or the largest that 127 times is
// finite. 0 for a block of zeros, and of denormals that are too small for a scale.
float scale_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / kLevels;
  return std::isfinite(scale * kLevels) ? scale : std::nextafter(scale, 0.0f);
}

// Rounds to nearest, ties to even: what is left of x once 1.5 x 2^23 is added has no fraction.
float to_level(float x) {
  constexpr float kInteger = 12582912.0f;
  return std::clamp(x, -kLevels, kLevels) + kInteger - kInteger;
}

void write_int8(std::span<const float> values, std::span<std::byte> out, std::span<float> left) {
  const float scale = scale_of(values);
  std::memcpy(out.data(), &scale, sizeof scale);
  const auto q = out.subspan(sizeof scale);
  for (size_t i = 0; i < values.size(); ++i) {
    const float level = scale > 0 ? to_level(values[i] / scale) : 0.0f;
    q[i] = static_cast<std::byte>(static_cast<int8_t>(level));
    if (!left.empty()) left[i] = values[i] - level * scale;
  }
}

bool read_int8(std::span<const std::byte> in, std::span<float> out) {
  float scale;
  std::memcpy(&scale, in.data(), sizeof scale);
  const auto q = in.subspan(sizeof scale);
  bool lowest = false;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto level = static_cast<int8_t>(q[i]);
    lowest |= level == -128;
    out[i] = static_cast<float>(level) * scale;
  }
  return !lowest && !std::signbit(scale) && std::isfinite(scale * kLevels);
}

// The two magnitudes of a block: the means of the magnitudes up to their common mean and above it.
struct TwoLevels {
  float split = 0;
  float low = 0;
  float high = 0;

  explicit TwoLevels(std::span<const float> values) {
    split = mean_of(values, [](float) { return true; });
    low = mean_of(values, [this](float magnitude) { return !(magnitude > split); });
    high = mean_of(values, [this](float magnitude) { return magnitude > split; });
    if (high < low) high = low;  // there are none above: 0
  }

 private:
  // Summed in double one by one. 0 if there are none.
  template <typename Takes>
  static float mean_of(std::span<const float> values, Takes takes) {
    double sum = 0;
    size_t count = 0;
    for (const float value : values) {
      const float magnitude = std::abs(value);
      if (!takes(magnitude)) continue;
      sum += magnitude;
      ++count;
    }
    return count == 0 ? 0 : static_cast<float>(sum / static_cast<double>(count));
  }
};

void write_int2(std::span<const float> values, std::span<std::byte> out, std::span<float> left) {
  const TwoLevels levels(values);
  std::memcpy(out.data(), &levels.low, sizeof levels.low);
  std::memcpy(out.data() + sizeof levels.low, &levels.high, sizeof levels.high);
  const auto codes = out.subspan(2 * sizeof(float));
  std::fill(codes.begin(), codes.end(), std::byte{0});
  for (size_t i = 0; i < values.size(); ++i) {
    const bool large = std::abs(values[i]) > levels.split;
    const bool negative = std::signbit(values[i]);
    codes[i / 4] |=
        static_cast<std::byte>((unsigned{large} | unsigned{negative} << 1) << i % 4 * 2);
    const float magnitude = large ? levels.high : levels.low;
    if (!left.empty()) left[i] = values[i] - (negative ? -magnitude : magnitude);
  }
}

bool read_int2(std::span<const std::byte> in, std::span<float> out) {
  float levels[2];
  std::memcpy(levels, in.data(), sizeof levels);
  const auto codes = in.subspan(sizeof levels);
  for (size_t i = 0; i < out.size(); ++i) {
    const unsigned code = std::to_integer<unsigned>(codes[i / 4]) >> i % 4 * 2;
    const float magnitude = levels[code & 1];
    out[i] = (code & 2) != 0 ? -magnitude : magnitude;
  }
  const size_t used = out.size() % 4 * 2;
  return !std::signbit(levels[0]) && levels[0] <= levels[1] && std::isfinite(levels[1]) &&
         (used == 0 || std::to_integer<unsigned>(codes.back()) >> used == 0);
}

void write_signs(std::span<const float> values, float mean, std::span<std::byte> out,
                 std::span<float> left) {
  std::fill(out.begin(), out.end(), std::byte{0});
  for (size_t i = 0; i < values.size(); ++i) {
    const bool negative = std::signbit(values[i]);
    out[i / 8] |= static_cast<std::byte>(unsigned{negative} << i % 8);
    if (!left.empty()) left[i] = values[i] - (negative ? -mean : mean);
  }
}

bool read_signs(std::span<const std::byte> in, float mean, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const bool negative = (std::to_integer<unsigned>(in[i / 8]) >> i % 8 & 1) != 0;
    out[i] = negative ? -mean : mean;
  }
  const size_t used = out.size() % 8;
  return used == 0 || std::to_integer<unsigned>(in.back()) >> used == 0;
}

bool has_mean(ValueFormat format) {
  return format == ValueFormat::kSign || format == ValueFormat::kMean;
}

// Of one block, without the mean.
size_t block_bytes(ValueFormat format, size_t values) {
  switch (format) {
    case ValueFormat::kFp32:
      return 4 * values;
    case ValueFormat::kFp16:
    case ValueFormat::kBf16:
      return 2 * values;
    case ValueFormat::kInt8:
      return sizeof(float) + values;
    case ValueFormat::kInt2:
      return 2 * sizeof(float) + (values + 3) / 4;
    case ValueFormat::kSign:
      return (values + 7) / 8;
    case ValueFormat::kMean:
      return 0;
  }
  return 0;
}

}  // namespace

OptionInfo value_format_option() {
  return {.name = "values",
          .type = OptionType::kChoice,
          .fallback = "fp32",
          .choices = {"fp32", "fp16", "bf16", "int8", "int2", "sign"},
          .help =
              "what kept values travel as; int8: a scale per 512; int2: two magnitudes per 512; "
              "sign: with one mean"};
}

ValueFormat value_format(const Options& options) {
  const std::string& name = options.text("values");
  if (name == "fp16") return ValueFormat::kFp16;
  if (name == "bf16") return ValueFormat::kBf16;
  if (name == "int8") return ValueFormat::kInt8;
  if (name == "int2") return ValueFormat::kInt2;
  if (name == "sign") return ValueFormat::kSign;
  return ValueFormat::kFp32;
}

size_t value_bytes(ValueFormat format, size_t kept) noexcept {
  if (kept == 0) return 0;
  return (has_mean(format) ? sizeof(float) : 0) +
         kept / kValueBlock * block_bytes(format, kValueBlock) +
         (kept % kValueBlock > 0 ? block_bytes(format, kept % kValueBlock) : 0);
}

ValueWriter::ValueWriter(ValueFormat format, float mean, std::span<std::byte> bytes) noexcept
    : format_(format), mean_(mean), bytes_(bytes) {
  if (!has_mean(format) || bytes.empty()) return;
  std::memcpy(bytes.data(), &mean, sizeof mean);
  bytes_ = bytes.subspan(sizeof mean);
}

void ValueWriter::write(std::span<const float> values, std::span<float> left) noexcept {
  const auto out = bytes_.first(block_bytes(format_, values.size()));
  bytes_ = bytes_.subspan(out.size());
  switch (format_) {
    case ValueFormat::kFp32:
      std::memcpy(out.data(), values.data(), values.size_bytes());
      std::fill(left.begin(), left.end(), 0.0f);
      break;
    case ValueFormat::kFp16:
      kernel::to_half_saturated(values, out, left);
      break;
    case ValueFormat::kBf16:
      kernel::to_bfloat_saturated(values, out, left);
      break;
    case ValueFormat::kInt8:
      write_int8(values, out, left);
      break;
    case ValueFormat::kInt2:
      write_int2(values, out, left);
      break;
    case ValueFormat::kSign:
      write_signs(values, mean_, out, left);
      break;
    case ValueFormat::kMean:
      for (size_t i = 0; i < left.size(); ++i) left[i] = values[i] - mean_;
      break;
  }
}

ValueReader::ValueReader(ValueFormat format, std::span<const std::byte> bytes) noexcept
    : format_(format), bytes_(bytes) {
  if (!has_mean(format) || bytes.empty()) return;
  std::memcpy(&mean_, bytes.data(), sizeof mean_);
  bytes_ = bytes.subspan(sizeof mean_);
  good_ = std::isfinite(mean_) && (format == ValueFormat::kMean || !std::signbit(mean_));
}

void ValueReader::read(std::span<float> out) noexcept {
  const auto in = bytes_.first(block_bytes(format_, out.size()));
  bytes_ = bytes_.subspan(in.size());
  switch (format_) {
    case ValueFormat::kFp32:
      std::memcpy(out.data(), in.data(), in.size());
      good_ &= all_finite(out);
      break;
    case ValueFormat::kFp16:
      good_ &= kernel::from_half(in, out);
      break;
    case ValueFormat::kBf16:
      good_ &= kernel::from_bfloat(in, out);
      break;
    case ValueFormat::kInt8:
      good_ &= read_int8(in, out);
      break;
    case ValueFormat::kInt2:
      good_ &= read_int2(in, out);
      break;
    case ValueFormat::kSign:
      good_ &= read_signs(in, mean_, out);
      break;
    case ValueFormat::kMean:
      std::fill(out.begin(), out.end(), mean_);
      break;
  }
}

}  // namespace thinwire
