// Vectors of random bits against the words that everybody else draws, on every target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/random_bits.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

TEST(RandomBits, AreHalvesOfTheWordsOfTheSequence) {
  const RandomKey keys[] = {
      {},
      {.seed = ~uint64_t{0}, .use = RandomUse::kCodec, .step = ~uint64_t{0}, .stream = ~0u},
      {.seed = 0x123456789ABCDEF, .use = RandomUse::kCodec, .step = 77, .stream = 5}};
  for_each_target([&](std::string_view target) {
    SCOPED_TRACE(target);
    for (const RandomKey& key : keys)
      for (const uint64_t position :
           {uint64_t{0}, uint64_t{5}, uint64_t{1000}, (uint64_t{8} << 32) - 11, ~uint64_t{0} / 2})
        for (const size_t count : {0, 1, 7, 8, 9, 33, 1024, 2500}) {
          std::vector<uint16_t> halves(count + 2, 0xEEEE);
          random_halves(key, position, std::span(halves).subspan(1, count));
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(halves[i + 1], random_half(key, position + i)) << position << " + " << i;
          EXPECT_EQ(halves.front(), 0xEEEE);
          EXPECT_EQ(halves.back(), 0xEEEE);
        }
  });
}

TEST(RandomBits, BothHalvesOfAWordAreUsedInOrder) {
  const RandomKey key{.seed = 4};
  EXPECT_EQ(random_half(key, 6), random_word(key, 3) & 0xFFFF);
  EXPECT_EQ(random_half(key, 7), random_word(key, 3) >> 16);
}

}  // namespace
}  // namespace thinwire::kernel
