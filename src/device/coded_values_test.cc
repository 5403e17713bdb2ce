// Codecs' kernel texts, run on the processor, against the SIMD kernels on every target, bit for
// bit.
// SPDX-License-Identifier: Apache-2.0
#include "device/coded_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/testing/test_name.h"
#include "device/testing/coded_cases.h"
#include "device/testing/host_kernels.h"
#include "kernel/for_each_target.h"
#include "kernel/half_float.h"

namespace thinwire::device {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

// What an encoder wrote: payload, and the remainder beside the values and in their place.
struct Written {
  Bytes bytes;
  std::vector<uint32_t> rest, rest_in_place;
  bool operator==(const Written&) const = default;
};

// encode(values, bytes, rest); bytes lie at an odd address between guards.
using Encode = std::function<void(const std::vector<float>& values, std::byte* bytes, float* rest)>;

Written written_by(const Encode& encode, const std::vector<float>& values, size_t size) {
  Bytes guarded(size + 2, std::byte{0xEE});
  std::vector<float> rest(values.size());
  auto in_place = values;
  encode(values, guarded.data() + 1, rest.data());
  Bytes first = guarded;
  encode(in_place, guarded.data() + 1, in_place.data());
  EXPECT_EQ(first, guarded);
  if (values.size() < 1000) {
    encode(values, guarded.data() + 1, nullptr);
    EXPECT_EQ(first, guarded);
  }
  EXPECT_EQ(guarded.front(), std::byte{0xEE});
  EXPECT_EQ(guarded.back(), std::byte{0xEE});
  return {guarded, bits_of(rest), bits_of(in_place)};
}

struct Added {
  std::vector<uint32_t> sum;
  bool good;
  bool operator==(const Added&) const = default;
};

// What the SIMD kernel and the text do. Payloads have `size(count)` bytes.
struct Pair {
  std::string name;
  std::function<size_t(size_t count)> size;
  std::function<void(std::span<const float>, std::span<std::byte>, std::span<float>)> simd_encode;
  std::function<bool(std::span<const std::byte>, float, std::span<float>)> simd_add;
  std::function<void(Launcher&, const float*, size_t, std::byte*, float*)> text_encode;
  std::function<void(Launcher&, const std::byte*, size_t, float, float*, uint32_t*)> text_add;
};

void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }

Pair floats(Float16 format) {
  const bool half = format == Float16::kHalf;
  return {.name = half ? "fp16" : "bf16",
          .size = [](size_t count) { return 2 * count; },
          .simd_encode = half ? kernel::to_half_saturated : kernel::to_bfloat_saturated,
          .simd_add = half ? kernel::add_half : kernel::add_bfloat,
          .text_encode = [=](auto& on, auto... args) { encode_floats(on, format, args...); },
          .text_add = [=](auto& on, auto... args) { add_floats(on, format, args...); }};
}

Pair scaled(size_t block, size_t bits) {
  const kernel::ScaledBlocks blocks{.block = block, .bits = bits};
  return {
      .name = "int" + std::to_string(bits) + ":block=" + std::to_string(block),
      .size = [=](size_t count) { return blocks.size(count); },
      .simd_encode = [=](auto values, auto bytes,
                         auto rest) { kernel::quantise_blocks(values, blocks, bytes, rest); },
      .simd_add = [=](auto bytes, float weight,
                      auto out) { return kernel::add_blocks(bytes, blocks, weight, out); },
      .text_encode = [=](auto& on, auto values, auto count, auto bytes,
                         auto rest) { quantise_blocks(on, values, count, blocks, bytes, rest); },
      .text_add = [=](auto& on, auto bytes, auto count, auto weight, auto out,
                      auto bad) { add_blocks(on, bytes, count, blocks, weight, out, bad); }};
}

Pair levels(kernel::LevelRule rule, size_t block) {
  const kernel::LevelBlocks blocks{.block = block, .rule = rule};
  return {.name = (rule == kernel::LevelRule::kMeans ? "onebit:block=" : "sign:block=") +
                  std::to_string(block),
          .size = [=](size_t count) { return blocks.size(count); },
          .simd_encode = [=](auto values, auto bytes,
                             auto rest) { kernel::encode_levels(values, blocks, bytes, rest); },
          .simd_add = [=](auto bytes, float weight,
                          auto out) { return kernel::add_levels(bytes, blocks, weight, out); },
          .text_encode =
              [=](auto& on, auto values, auto count, auto bytes, auto rest) {
                std::vector<uint64_t> scratch(level_scratch_bytes(count, blocks) / 8 + 1);
                encode_levels(on, values, count, blocks, bytes, rest, scratch.data());
              },
          .text_add = [=](auto& on, auto bytes, auto count, auto weight, auto out,
                          auto bad) { add_levels(on, bytes, count, blocks, weight, out, bad); }};
}

Pair grid(kernel::GridRule rule, size_t block, size_t bits, float levels, bool random) {
  const kernel::GridBlocks blocks{.block = block, .bits = bits, .rule = rule, .levels = levels};
  const kernel::Dither draws{.key = {.seed = 0x123456789A, .step = uint64_t{3} << 40, .stream = 7},
                             .position = 5};
  const kernel::Dither* const fixed = nullptr;
  const auto dither = [=](const kernel::Dither& these) { return random ? &these : fixed; };
  const bool shifted = rule == kernel::GridRule::kMinMax;
  Pair pair = scaled(block, bits);  // its decoder reads what kMax wrote
  pair.name = (shifted ? "uniform:bits=" : "qsgd:levels=") +
              std::to_string(shifted ? bits : static_cast<size_t>(levels)) +
              ",block=" + std::to_string(block) + (random ? ",random" : "");
  pair.size = [=](size_t count) { return blocks.size(count); };
  pair.simd_encode = [=](auto values, auto bytes, auto rest) {
    kernel::quantise_grid(values, blocks, dither(draws), bytes, rest);
  };
  pair.text_encode = [=](auto& on, auto values, auto count, auto bytes, auto rest) {
    std::vector<uint64_t> scratch(grid_scratch_bytes(count, blocks) / 8 + 1);
    quantise_grid(on, values, count, blocks, dither(draws), bytes, rest, scratch.data());
  };
  if (!shifted) return pair;
  pair.simd_add = [=](auto bytes, float weight, auto out) {
    return kernel::add_grid(bytes, blocks, weight, out);
  };
  pair.text_add = [=](auto& on, auto bytes, auto count, auto weight, auto out, auto bad) {
    add_grid(on, bytes, count, blocks, weight, out, bad);
  };
  return pair;
}

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs = {floats(Float16::kHalf), floats(Float16::kBfloat)};
  for (size_t bits = 2; bits <= 8; ++bits) pairs.push_back(scaled(64, bits));
  for (const size_t block : {256, 1000, 4096}) pairs.push_back(scaled(block, 8));
  for (const auto rule : {kernel::LevelRule::kMagnitude, kernel::LevelRule::kMeans})
    for (const size_t block : {64, 256, 4096, 16384, 1 << 20}) pairs.push_back(levels(rule, block));
  for (const bool random : {false, true}) {
    for (const size_t bits : {1, 3, 4, 8})
      pairs.push_back(grid(kernel::GridRule::kMinMax, 256, bits, 1, random));
    for (const size_t block : {size_t{64}, size_t{16384}, size_t{1} << 20})
      pairs.push_back(grid(kernel::GridRule::kMinMax, block, 4, 1, random));
    for (const float levels : {1.0f, 7.0f, 100.0f, 127.0f}) {
      const size_t bits = levels < 2 ? 2 : levels < 8 ? 4 : 8;
      pairs.push_back(
          grid(kernel::GridRule::kMax, levels < 100 ? 512 : 20000, bits, levels, random));
    }
  }
  return pairs;
}

class CodedValues : public testing::TestWithParam<Pair> {};

Added add_by_text(const Pair& pair, Launcher& on, const Bytes& bytes, size_t count) {
  auto sum = make_values(Values::kNormal, count, 17);
  uint32_t bad = 0;
  pair.text_add(on, bytes.data() + 1, count, 0.3f, sum.data(), &bad);
  return {bits_of(sum), bad == 0};
}

Added add_by_simd(const Pair& pair, const Bytes& bytes, size_t count) {
  auto sum = make_values(Values::kNormal, count, 17);
  const auto payload = std::span(bytes).subspan(1, pair.size(count));
  const bool good = pair.simd_add(payload, 0.3f, sum);
  return {bits_of(sum), good};
}

TEST_P(CodedValues, HaveTheBitsOfTheSimdKernels) {
  const Pair& pair = GetParam();
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count));
      const auto values = make_values(kind, count);
      for (const bool backward : {false, true}) {
        HostLauncher on(backward);
        const Written by_text =
            written_by([&](const auto& from, auto* bytes,
                           auto* rest) { pair.text_encode(on, from.data(), count, bytes, rest); },
                       values, pair.size(count));
        const Added added = add_by_text(pair, on, by_text.bytes, count);
        EXPECT_TRUE(added.good);
        kernel::for_each_target([&](std::string_view target) {
          SCOPED_TRACE(target);
          const Written by_simd = written_by(
              [&](const auto& from, auto* bytes, auto* rest) {
                pair.simd_encode(from, {bytes, pair.size(count)}, {rest, rest ? count : 0});
              },
              values, pair.size(count));
          ASSERT_EQ(by_text, by_simd);
          ASSERT_EQ(added, add_by_simd(pair, by_simd.bytes, count));
        });
      }
    }
}

// Bytes that nobody encoded: what is good is the same for both, and so is the sum where it is good.
TEST_P(CodedValues, AcceptWhatTheSimdKernelsAccept) {
  const Pair& pair = GetParam();
  HostLauncher on;
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const size_t count = 1 + seed % 70;
    Bytes bytes(pair.size(count) + 2);
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(random_word({.seed = seed}, i) % (seed % 2 ? 256 : 64));
    const Added by_simd = add_by_simd(pair, bytes, count);
    const Added by_text = add_by_text(pair, on, bytes, count);
    ASSERT_EQ(by_text.good, by_simd.good) << seed;
    if (by_simd.good) {
      ASSERT_EQ(by_text.sum, by_simd.sum) << seed;
    }
    refused += !by_simd.good;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, 400u);
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodedValues, testing::ValuesIn(all_pairs()),
                         [](const auto& row) { return test_name(row.param.name); });

// signum's codec settles zeros before it packs; its decoder takes every byte.
TEST(SignumText, HasTheBitsOfTheCodecsRule) {
  for (const Values kind : {Values::kNormal, Values::kZeros, Values::kSpike, Values::kTiny})
    for (const size_t count : kSizes)
      for (const uint64_t first : {0, 7}) {
        const auto values = make_values(kind, count);
        std::vector<float> settled = values;
        for (size_t i = 0; i < count; ++i)
          if (values[i] == 0) settled[i] = (first + i) % 2 == 0 ? 0x1p-126f : -0x1p-126f;
        Bytes by_simd(kernel::code_bytes(count, 1)), by_text(by_simd.size());
        std::vector<float> rest(count), text_rest(count);
        kernel::pack_levels(settled, {.high = 1, .low = -1}, by_simd, rest);
        HostLauncher on;
        encode_signs(on, values.data(), count, first, by_text.data(), text_rest.data());
        ASSERT_EQ(by_text, by_simd);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(text_rest[i], rest[i]) << i;

        auto sum = make_values(Values::kNormal, count, 3), text_sum = sum;
        kernel::add_level_bits(by_simd, {.high = 0.3f, .low = -0.3f}, sum);
        add_signs(on, by_simd.data(), count, 0.3f, text_sum.data());
        ASSERT_EQ(bits_of(text_sum), bits_of(sum));
      }
}

// Every half float, and the borders between them.
TEST(HalfFloatText, RoundsEveryBorderAsTheSimdKernels) {
  for (const Float16 format : {Float16::kHalf, Float16::kBfloat}) {
    const Pair pair = floats(format);
    std::vector<float> values;
    for (uint64_t high = 0; high < 65536; high += 3)
      for (const uint32_t low : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u})
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(high << 16) | low));
    Bytes by_text(2 * values.size()), by_simd(2 * values.size());
    HostLauncher on;
    pair.text_encode(on, values.data(), values.size(), by_text.data(), nullptr);
    pair.simd_encode(values, by_simd, {});
    ASSERT_EQ(by_text, by_simd);
    for (size_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      float x = 0, y = 0;
      uint32_t bad = 0;
      const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
      pair.text_add(on, bytes, 1, 1.0f, &x, &bad);
      const bool good = pair.simd_add({bytes, 2}, 1.0f, {&y, 1});
      ASSERT_EQ(bad == 0, good) << i;
      if (good) {
        ASSERT_EQ(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(y)) << i;
      }
    }
  }
}

// Every finite number of 16 bits, at positions that fall.
TEST(HalfFloatText, AddsAtPositionsWhatTheSimdKernelsAdd) {
  for (const Float16 format : {Float16::kHalf, Float16::kBfloat}) {
    const uint32_t exponent = format == Float16::kHalf ? 0x7C00 : 0x7F80;
    Bytes bytes(1);  // so that the others are at an odd address
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      if ((bits & exponent) == exponent) continue;
      bytes.push_back(static_cast<std::byte>(bits));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    }
    const size_t kept = bytes.size() / 2;
    std::vector<uint32_t> positions(kept);
    for (size_t i = 0; i < kept; ++i) positions[i] = static_cast<uint32_t>(2 * (kept - i));
    std::vector<float> sum = make_values(Values::kNormal, 2 * kept + 1), expected = sum;
    std::vector<float> values(kept);
    const auto in = std::span(bytes).subspan(1);
    ASSERT_TRUE(format == Float16::kHalf ? kernel::from_half(in, values)
                                         : kernel::from_bfloat(in, values));
    for (size_t i = 0; i < kept; ++i) expected[positions[i]] += 0.3f * values[i];
    HostLauncher on;
    add_floats_at(on, format, positions.data(), bytes.data() + 1, kept, 0.3f, sum.data());
    ASSERT_EQ(bits_of(sum), bits_of(expected));
  }
}

}  // namespace
}  // namespace thinwire::device
