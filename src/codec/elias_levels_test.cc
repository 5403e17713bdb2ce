// Elias strings: the document's example, round trips, the bound, and bytes that may be anything.
// SPDX-License-Identifier: Apache-2.0
#include "codec/elias_levels.h"

#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <vector>

#include "core/random.h"

namespace thinwire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes write(const std::vector<int8_t>& levels, unsigned most) {
  const size_t bits = static_cast<size_t>(std::bit_width(most)) + 1;
  std::vector<uint8_t> codes;
  size_t kept = 0;
  for (const int level : levels) {
    codes.push_back(static_cast<uint8_t>(level & ((1 << bits) - 1)));
    kept += level != 0;
  }
  Bytes bytes(max_elias_size(levels.size(), most));
  const EliasSize written = write_elias(codes, bits, bytes);
  EXPECT_EQ(written.kept, kept);
  EXPECT_LE(written.size, bytes.size());
  bytes.resize(written.size);
  return bytes;
}

// None if the bytes are refused, or others could follow them.
std::optional<std::vector<int8_t>> read(const Bytes& bytes, size_t count, unsigned most) {
  std::vector<float> out(count);
  const auto size = add_elias(bytes, most, 1, out);
  if (!size || *size != bytes.size()) return {};
  return std::vector<int8_t>(out.begin(), out.end());
}

TEST(EliasLevels, WritesTheExampleOfTheDocument) {
  EXPECT_EQ(write({0, 2, 0, 0, -1}, 2), (Bytes{std::byte{0x22}, std::byte{0x1F}}));
}

TEST(EliasLevels, ReadsWhatWasWritten) {
  for (const unsigned most : {1u, 2u, 7u, 100u, 127u})
    for (const size_t count : {0, 1, 2, 7, 64, 500, 4096})
      for (const uint32_t rarity : {1u, 2u, 30u, 5000u}) {  // one in so many is not 0
        std::vector<int8_t> levels(count);
        for (size_t i = 0; i < count; ++i) {
          const uint32_t word = random_word({.seed = most}, i);
          if (word % rarity != 0) continue;
          const auto magnitude = static_cast<int>(1 + (word >> 16) % most);
          levels[i] = static_cast<int8_t>(word >> 12 & 1 ? -magnitude : magnitude);
        }
        EXPECT_EQ(read(write(levels, most), count, most), levels);
      }
}

TEST(EliasLevels, TheDearestLevelsMeetTheBound) {
  for (const unsigned most : {1u, 7u, 127u})
    for (const size_t count : {1, 8, 100}) {
      const std::vector<int8_t> levels(count, static_cast<int8_t>(-static_cast<int>(most)));
      EXPECT_EQ(write(levels, most).size(), max_elias_size(count, most));
    }
}

TEST(EliasLevels, RefusesWhatBreaksARule) {
  const std::vector<int8_t> levels = {0, 5, 0, -7, 0, 0};
  const Bytes good = write(levels, 7);
  EXPECT_FALSE(read(good, 3, 7)) << "position beyond the end";
  EXPECT_FALSE(read(good, 7, 7)) << "no end";
  EXPECT_FALSE(read(good, 6, 6)) << "magnitude";
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(read({good.begin(), good.begin() + static_cast<long>(size)}, 6, 7));
  Bytes bad = good;
  bad.back() |= std::byte{0x80};
  EXPECT_FALSE(read(bad, 6, 7)) << "a bit after the end";
  EXPECT_FALSE(read(Bytes(20), 6, 7)) << "a gap of more than 32 bits";
  EXPECT_FALSE(read({}, 0, 7));
}

TEST(EliasLevels, SurvivesAnyBytes) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Bytes bytes(seed % 13);
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(random_word({.seed = seed}, i));
    const auto levels = read(bytes, 20, 7);
    if (levels) {
      EXPECT_EQ(write(*levels, 7), bytes) << "one string for one list of levels";
    }
  }
}

}  // namespace
}  // namespace thinwire
