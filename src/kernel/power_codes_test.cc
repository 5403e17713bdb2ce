// Powers of two against plain arithmetic on every target; reading bytes that may be anything.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/power_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernel/for_each_target.h"
#include "kernel/random_bits.h"

namespace thinwire::kernel {
namespace {

using Bytes = std::vector<std::byte>;

// Every exponent, all kinds of mantissas, both signs.
std::vector<float> values_of(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = random_word({.seed = 1}, i);
    const uint32_t bits = i % 5 == 0 ? word & 0xFF800000u : i % 5 == 1 ? word | 0x7FFFFFu : word;
    values[i] = std::bit_cast<float>(bits);
    if (!std::isfinite(values[i])) values[i] = i % 2 ? 0.0f : -0.0f;
  }
  return values;
}

float oracle(float x, uint16_t draw) {
  const float magnitude = std::abs(x);
  const int e = std::max(magnitude == 0 ? -1000 : std::ilogb(magnitude), -127);
  const double below = e == -127 ? 0 : std::ldexp(1.0, e);
  const double above = std::ldexp(1.0, e + 1);
  // The fraction in sixteen bits, halves up.
  const double fraction = std::floor((magnitude - below) / (above - below) * 65536 + 0.5);
  double power = fraction + draw >= 65536 ? above : below;
  power = std::min(power, 0x1p127);
  return static_cast<float>(x < 0 ? -power : power);
}

TEST(PowerCodes, RoundAsTheOracle) {
  const Dither dither{.key = {.seed = 3}, .position = 21};
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const size_t count : {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 1024, 1029, 30000}) {
      const auto values = values_of(count);
      Bytes guarded(power_bytes(count) + 2, std::byte{0xEE});
      const auto bytes = std::span(guarded).subspan(1, power_bytes(count));
      auto rest = values;
      round_to_powers(rest, dither, bytes, rest);
      EXPECT_EQ(guarded.front(), std::byte{0xEE});
      EXPECT_EQ(guarded.back(), std::byte{0xEE});
      std::vector<float> out(count, 0.0f);
      ASSERT_TRUE(add_powers(bytes, 1, out));
      for (size_t i = 0; i < count; ++i) {
        const float expected = oracle(values[i], random_half(dither.key, dither.position + i));
        ASSERT_EQ(out[i], expected) << values[i];
        ASSERT_EQ(rest[i], values[i] - expected);
        const auto exponent = std::to_integer<unsigned>(bytes[i / 8 * 9 + i % 8]);
        ASSERT_EQ(exponent, std::bit_cast<uint32_t>(std::abs(expected)) >> 23);
      }
      Bytes again(bytes.size());
      round_to_powers(values, dither, again);
      EXPECT_EQ(again, Bytes(bytes.begin(), bytes.end()));
    }
  });
}

TEST(PowerCodes, AddWithWeight) {
  const Bytes bytes = {std::byte{128}, std::byte{0}, std::byte{126}, std::byte{0b101}};
  std::vector<float> out = {10, 10, 10};
  for_each_target([&](std::string_view) {
    std::fill(out.begin(), out.end(), 10.0f);
    EXPECT_TRUE(add_powers(bytes, 0.5f, out));
    EXPECT_EQ(out, (std::vector<float>{9, 10, 9.75f}));
  });
}

TEST(PowerCodes, RefuseTheExponentOfInfinity) {
  for_each_target([](std::string_view) {
    std::vector<float> out(21);
    for (size_t at = 0; at < 21; ++at) {
      Bytes bytes(power_bytes(21), std::byte{254});
      EXPECT_TRUE(add_powers(bytes, 1, out));
      bytes[at / 8 * 9 + at % 8] = std::byte{255};
      EXPECT_FALSE(add_powers(bytes, 1, out)) << at;
    }
    Bytes signs(power_bytes(21));
    for (const size_t at : {8, 17, 23}) signs[at] = std::byte{255};
    EXPECT_TRUE(add_powers(signs, 1, out)) << "signs may be anything";
  });
}

}  // namespace
}  // namespace thinwire::kernel
