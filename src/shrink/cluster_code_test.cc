// Tests of coded cluster numbers: they come back, changes cost little, any bytes are numbers or an
// error.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/cluster_code.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace thinwire {
namespace {

constexpr RandomKey kDraw{.seed = 19, .use = RandomUse::kTest};

std::vector<uint16_t> draw(size_t size, uint32_t count, uint64_t from) {
  std::vector<uint16_t> numbers;
  for (uint64_t i = 0; i < size; ++i)
    numbers.push_back(static_cast<uint16_t>(random_below(kDraw, from + i, count)));
  return numbers;
}

std::vector<uint16_t> read(std::span<const std::byte> coded, size_t size, uint32_t count,
                           std::span<const uint16_t> before = {}) {
  std::vector<uint16_t> numbers;
  read_numbers(coded, count, before, size, numbers).or_throw();
  return numbers;
}

TEST(ClusterCode, NumbersComeBack) {
  for (const uint32_t count : {5u, 7u, 19u, 259u})
    for (const size_t size : {0u, 1u, 2u, 1000u}) {
      const auto before = draw(size, count, 0), numbers = draw(size, count, 5000);
      EXPECT_EQ(read(code_numbers(numbers, count), size, count), numbers);
      EXPECT_EQ(read(code_numbers(numbers, count, before), size, count, before), numbers);
      EXPECT_EQ(read(code_numbers(before, count, before), size, count, before), before);
    }
}

TEST(ClusterCode, TheFarthestChangesComeBack) {
  constexpr uint32_t kCount = 259;
  const std::vector<uint16_t> before = {0, kCount - 1, 0, kCount - 1, 129},
                              numbers = {kCount - 1, 0, 1, kCount - 2, 0};
  EXPECT_EQ(read(code_numbers(numbers, kCount, before), 5, kCount, before), numbers);
}

// Numbers that stay cost hundredths of a bit; one value in fifty that moves to the next number
// costs about the entropy of that, 0.16 bits a value with its direction.
TEST(ClusterCode, FewChangesAreSmall) {
  constexpr size_t kSize = 40000;
  constexpr uint32_t kCount = 11;
  const auto before = draw(kSize, kCount, 0);
  EXPECT_LT(code_numbers(before, kCount, before).size(), kSize / 8 / 40);
  auto moved = before;
  for (size_t i = 0; i < kSize; ++i)
    if (random_below(kDraw, 900000 + i, 50) == 0)
      moved[i] = static_cast<uint16_t>(moved[i] + 1u < kCount ? moved[i] + 1 : moved[i] - 1);
  EXPECT_LT(code_numbers(moved, kCount, before).size(), kSize / 8 / 5);
  EXPECT_GT(code_numbers(moved, kCount).size(), kSize / 8 * 3);  // log2(11) bits each
}

TEST(ClusterCode, AnyBytesAreNumbersOrAnError) {
  constexpr uint32_t kCount = 11;
  const auto before = draw(300, kCount, 0), numbers = draw(300, kCount, 1000);
  for (const bool changes : {false, true}) {
    const std::span<const uint16_t> from = changes ? std::span(before) : std::span(before).first(0);
    const auto coded = code_numbers(numbers, kCount, from);
    std::vector<uint16_t> out(300);
    int refused = 0;
    for (uint64_t i = 0; i < 2000; ++i) {
      auto bytes = coded;
      bytes[random_below(kDraw, 2 * i, bytes.size())] ^=
          static_cast<std::byte>(1 + random_below(kDraw, 2 * i + 1, 255));
      if (!read_numbers(bytes, kCount, from, 300, out)) {
        ++refused;
        continue;
      }
      for (const uint16_t number : out) ASSERT_LT(number, kCount);
    }
    EXPECT_GT(refused, 1000);
    for (size_t size = 0; size < coded.size(); ++size)
      EXPECT_FALSE(read_numbers(std::span(coded).first(size), kCount, from, 300, out)) << size;
  }
}

// Memory is that of numbers which the bytes stand for, whatever number of values is asked for.
TEST(ClusterCode, MemoryIsAskedForPieceByPiece) {
  constexpr uint32_t kCount = 16;
  const auto coded = code_numbers(draw(300'000, kCount, 0), kCount);
  std::vector<uint16_t> numbers;
  EXPECT_FALSE(read_numbers(coded, kCount, {}, uint64_t{1} << 40, numbers));
  EXPECT_LT(numbers.capacity(), 1'200'000u);
  std::vector<uint16_t> few;
  EXPECT_FALSE(read_numbers(std::span(coded).first(40), kCount, {}, uint64_t{1} << 40, few));
  EXPECT_LE(few.capacity(), 65'536u);
}

}  // namespace
}  // namespace thinwire
