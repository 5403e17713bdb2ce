// Packing against a plain loop over bits: every width, every length around a vector, every target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/code_bits.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<uint8_t> random_codes(size_t count, size_t bits) {
  std::vector<uint8_t> codes(count);
  for (size_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>(random_word({.seed = bits}, i) >> (32 - bits));
  return codes;
}

Bytes oracle_pack(const std::vector<uint8_t>& codes, size_t bits) {
  Bytes out(code_bytes(codes.size(), bits));
  for (size_t i = 0; i < codes.size() * bits; ++i)
    if (codes[i / bits] >> i % bits & 1) out[i / 8] |= std::byte(1 << i % 8);
  return out;
}

TEST(CodeBits, PacksAsTheOracle) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t bits = 1; bits <= 8; ++bits)
      for (size_t count = 0; count <= 200; ++count) {
        const auto codes = random_codes(count, bits);
        const auto expected = oracle_pack(codes, bits);
        Bytes guarded(expected.size() + 2, std::byte{0xEE});
        pack_codes(codes, bits, std::span(guarded).subspan(1, expected.size()));
        ASSERT_EQ(Bytes(guarded.begin() + 1, guarded.end() - 1), expected) << bits << " " << count;
        EXPECT_EQ(guarded.front(), std::byte{0xEE});
        EXPECT_EQ(guarded.back(), std::byte{0xEE});
      }
  });
}

TEST(CodeBits, UnpacksWhatWasPacked) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t bits = 1; bits <= 8; ++bits)
      for (size_t count = 0; count <= 200; ++count) {
        const auto codes = random_codes(count, bits);
        std::vector<uint8_t> guarded(count + 2, 0xEE);
        // On the heap at its exact size: AddressSanitizer sees a byte too many.
        unpack_codes(oracle_pack(codes, bits), bits, std::span(guarded).subspan(1, count));
        ASSERT_EQ(std::vector<uint8_t>(guarded.begin() + 1, guarded.end() - 1), codes)
            << bits << " " << count;
        EXPECT_EQ(guarded.front(), 0xEE);
        EXPECT_EQ(guarded.back(), 0xEE);
      }
  });
}

TEST(CodeBits, DoesNotLookAtUnusedBits) {
  const Bytes bytes = {std::byte{0xFF}, std::byte{0xFF}};
  std::vector<uint8_t> codes(3);
  unpack_codes(bytes, 5, codes);
  EXPECT_EQ(codes, (std::vector<uint8_t>{31, 31, 31}));
}

}  // namespace
}  // namespace thinwire::kernel
