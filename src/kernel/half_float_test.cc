// Every half and bfloat, and every border between two of them, against arithmetic in double.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/half_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A format as numbers: mantissa bits, smallest normal exponent, largest finite value, bits of Inf.
struct Format {
  int mantissa;
  int min_exponent;
  double max;
  uint16_t inf;
  void (*encode)(std::span<const float>, std::span<std::byte>) noexcept;
  void (*encode_saturated)(std::span<const float>, std::span<std::byte>, std::span<float>) noexcept;
  bool (*decode)(std::span<const std::byte>, std::span<float>) noexcept;
  bool (*add)(std::span<const std::byte>, float, std::span<float>) noexcept;
};

const Format kHalf = {10, -14, 65504.0, 0x7C00, to_half, to_half_saturated, from_half, add_half};
const Format kBfloat = {7,           -126,      0x1.FEp127, 0x7F80, to_bfloat, to_bfloat_saturated,
                        from_bfloat, add_bfloat};

// The value of a bit pattern that is finite.
double value_of(const Format& format, uint16_t bits) {
  const int magnitude = bits & 0x7FFF;
  const int exponent = magnitude >> format.mantissa;
  const int fraction = magnitude & ((1 << format.mantissa) - 1);
  const int implicit = exponent > 0 ? 1 << format.mantissa : 0;
  const double value = std::ldexp(
      implicit + fraction, format.min_exponent - format.mantissa + std::max(exponent - 1, 0));
  return bits & 0x8000 ? -value : value;
}

uint16_t oracle_encode(const Format& format, float x, bool saturated) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) {  // the payload's leading bits, and the quiet bit
    const uint32_t payload = (std::bit_cast<uint32_t>(x) & 0x7FFFFF) >> (23 - format.mantissa);
    return static_cast<uint16_t>(sign | format.inf | payload | 1 << (format.mantissa - 1));
  }
  const double magnitude = std::abs(static_cast<double>(x));
  const int exponent =
      std::max(std::isinf(x) || x == 0 ? -1000 : std::ilogb(magnitude), format.min_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa);
  const double rounded = std::nearbyint(magnitude / unit);  // ties to even
  if (rounded * unit > format.max)
    return static_cast<uint16_t>(sign | (saturated ? format.inf - 1 : format.inf));
  // Patterns are in the order of their values, and those of one exponent follow the last one's.
  const int steps = (exponent - format.min_exponent) << format.mantissa;
  return static_cast<uint16_t>(sign | (steps + static_cast<int>(rounded)));
}

// Every finite pattern's value, the midpoint to the next one, their neighbours in fp32, and more.
std::vector<float> hard_values(const Format& format) {
  std::vector<float> values = {0.0f,
                               kInf,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::bit_cast<float>(0x7F800001u),
                               std::bit_cast<float>(0x7FA01234u),
                               std::bit_cast<float>(0x7FFFFFFFu),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max()};
  for (uint16_t bits = 0; bits < format.inf; ++bits) {
    const double below = value_of(format, bits);
    const double step = bits + 1 < format.inf ? value_of(format, bits + 1) - below : 0;
    for (const double exact : {below, below + step / 2}) {
      const auto x = static_cast<float>(exact);
      for (const float near : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)})
        values.push_back(near);
    }
  }
  for (const double x : {format.max * (1 + 0x1p-12), format.max * (1 + 0x1p-11), 65519.996, 65520.0,
                         65535.99, 65536.0, 1e30})
    values.push_back(static_cast<float>(x));
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

class HalfFloat : public testing::TestWithParam<const Format*> {};

TEST_P(HalfFloat, RoundsToNearestEven) {
  const Format& format = *GetParam();
  const auto values = hard_values(format);
  std::vector<uint16_t> bits(values.size());
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const bool saturated : {false, true}) {
      const auto bytes = std::as_writable_bytes(std::span(bits));
      saturated ? format.encode_saturated(values, bytes, {}) : format.encode(values, bytes);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(bits[i], oracle_encode(format, values[i], saturated))
            << values[i] << (saturated ? " saturated" : "");
    }
  });
}

TEST_P(HalfFloat, DecodesEveryPattern) {
  const Format& format = *GetParam();
  std::vector<uint16_t> bits;
  for (int i = 0; i < 65536; ++i) bits.push_back(static_cast<uint16_t>(i));
  std::vector<float> out(bits.size());
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    EXPECT_FALSE(format.decode(std::as_bytes(std::span(bits)), out));
    for (size_t i = 0; i < bits.size(); ++i) {
      const uint16_t magnitude = bits[i] & 0x7FFF;
      EXPECT_EQ(std::signbit(out[i]), bits[i] >= 0x8000);
      if (magnitude > format.inf) {
        ASSERT_TRUE(std::isnan(out[i])) << i;
      } else if (magnitude == format.inf) {
        ASSERT_TRUE(std::isinf(out[i])) << i;
      } else {
        ASSERT_EQ(out[i], value_of(format, bits[i])) << i;
      }
    }
  });
}

TEST_P(HalfFloat, TargetsDecodeToTheSameBits) {
  const Format& format = *GetParam();
  std::vector<uint16_t> bits;
  for (int i = 0; i < 65536; ++i) bits.push_back(static_cast<uint16_t>(i));
  std::vector<std::vector<uint32_t>> results;
  for_each_target([&](std::string_view) {
    auto& result = results.emplace_back(bits.size());
    std::vector<float> out(bits.size());
    format.decode(std::as_bytes(std::span(bits)), out);
    for (size_t i = 0; i < out.size(); ++i) result[i] = std::bit_cast<uint32_t>(out[i]);
    EXPECT_EQ(result, results.front());
  });
}

// Every length around a vector, at every alignment of the bytes, in place, nothing else touched.
TEST_P(HalfFloat, RestAddAndTails) {
  const Format& format = *GetParam();
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t count = 0; count <= 67; ++count) {
      std::vector<float> values(count), sum(count + 1, 3.0f);
      for (size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(i % 7 == 3 ? 1e6 * format.max : std::sin(i + 0.3) * 11);
      std::vector<std::byte> bytes(2 * count + 2, std::byte{0xEE});
      const auto coded = std::span(bytes).subspan(1, 2 * count);
      auto rest = values;
      rest.push_back(5.0f);
      format.encode_saturated(std::span(rest).first(count), coded, std::span(rest).first(count));
      EXPECT_TRUE(format.add(coded, 0.5f, std::span(sum).first(count)));

      for (size_t i = 0; i < count; ++i) {
        const auto decoded =
            static_cast<float>(value_of(format, oracle_encode(format, values[i], true)));
        ASSERT_EQ(rest[i], values[i] - decoded);
        ASSERT_EQ(sum[i], 3.0f + 0.5f * decoded);
      }
      EXPECT_EQ(bytes.front(), std::byte{0xEE});
      EXPECT_EQ(bytes.back(), std::byte{0xEE});
      EXPECT_EQ(rest.back(), 5.0f);
      EXPECT_EQ(sum.back(), 3.0f);
    }
  });
}

TEST_P(HalfFloat, ReportsEachValueThatIsNotFinite) {
  const Format& format = *GetParam();
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    std::vector<float> out(37);
    for (const int bad : {int{format.inf}, format.inf | 1, 0xFFFF}) {
      for (size_t at = 0; at < out.size(); ++at) {
        std::vector<uint16_t> bits(out.size(), static_cast<uint16_t>(format.inf - 1));
        const auto bytes = std::as_bytes(std::span(bits));
        EXPECT_TRUE(format.decode(bytes, out));
        bits[at] = static_cast<uint16_t>(bad);
        EXPECT_FALSE(format.decode(bytes, out));
        EXPECT_FALSE(format.add(bytes, 0.0f, out));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfFloat, testing::Values(&kHalf, &kBfloat),
                         [](const auto& param) { return param.index == 0 ? "half" : "bfloat"; });

}  // namespace
}  // namespace thinwire::kernel
