// Position codes against a bit-by-bit encoder, their size against the entropy, and broken codes.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/position_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "core/random.h"

namespace thinwire::kernel {
namespace {

using ::testing::ElementsAreArray;
using Bytes = std::vector<std::byte>;
using Positions = std::vector<uint32_t>;

constexpr size_t kMaxCount = 0xffffffff;

// Each of `count` positions with probability `density`.
Positions random_positions(size_t count, double density, uint32_t stream = 0) {
  Positions positions;
  const RandomKey key{.seed = 3, .stream = stream};
  double at = -1;
  for (uint64_t i = 0;; ++i) {
    const double unit = (random_word(key, i) + 0.5) / 4294967296.0;
    at += 1 + std::floor(std::log(unit) / std::log1p(-density));
    if (at >= static_cast<double>(count)) return positions;
    positions.push_back(static_cast<uint32_t>(at));
  }
}

Positions run(uint32_t first, size_t count) {
  Positions positions(count);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

Bytes pack(const Positions& positions, size_t count) {
  Bytes bytes(max_position_bytes(count, positions.size()));
  bytes.resize(pack_positions(positions, bytes));
  return bytes;
}

// Nothing when the code is broken. Checks what the reader promises about any bytes.
std::optional<Positions> unpack(std::span<const std::byte> bytes, size_t count, size_t kept) {
  // A copy of exactly this size, so that AddressSanitizer sees a read past the end.
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  PositionReader reader({exact.get(), bytes.size()}, count, kept);
  Positions positions;
  for (auto block = reader.next(); !block.empty(); block = reader.next()) {
    EXPECT_EQ(block.size(), std::min(kPositionBlock, kept - positions.size()));
    for (const uint32_t position : block) {
      EXPECT_LT(position, count);
      if (!positions.empty()) {
        EXPECT_GT(position, positions.back());
      }
      positions.push_back(position);
    }
  }
  if (!reader.done()) return std::nullopt;
  EXPECT_EQ(positions.size(), kept);
  return positions;
}

// The documented layout, one bit at a time, with the parameters given.
Bytes oracle(const Positions& positions, std::span<const std::byte> parameters) {
  Bytes bytes(parameters.begin(), parameters.end());
  std::vector<bool> low, high;
  int64_t last = -1;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto gap = static_cast<uint64_t>(positions[i] - last - 1);
    const auto parameter = std::to_integer<unsigned>(parameters[i / kPositionBlock]);
    for (unsigned bit = 0; bit < parameter; ++bit) low.push_back(gap >> bit & 1);
    high.insert(high.end(), gap >> parameter, false);
    high.push_back(true);
    last = positions[i];
  }
  for (const auto* bits : {&low, &high})
    for (size_t i = 0; i < bits->size(); i += 8) {
      unsigned byte = 0;
      for (size_t j = i; j < std::min(i + 8, bits->size()); ++j) byte |= (*bits)[j] << (j - i);
      bytes.push_back(static_cast<std::byte>(byte));
    }
  return bytes;
}

std::vector<std::pair<Positions, size_t>> cases() {
  std::vector<std::pair<Positions, size_t>> all = {
      {{}, 0},
      {{}, 100},
      {{0}, 1},
      {{7}, 8},
      {{0xfffffffe}, kMaxCount},
      {{0, 0xfffffffe}, kMaxCount},
      {{1, 2, 3, 1000000}, 1000001},
      {run(0, 511), 511},
      {run(0, 512), 512},
      {run(0, 513), 100000},
      {run(5, 1024), 1029},
  };
  for (const double density : {1e-4, 1e-3, 0.01, 0.0584, 0.1, 0.3, 0.9})
    all.emplace_back(random_positions(100'000, density), 100'000);
  Positions layers = random_positions(1'000'000, 1e-3);  // a dense layer behind a sparse one
  for (const uint32_t position : random_positions(20'000, 0.3))
    layers.push_back(1'000'000 + position);
  all.emplace_back(layers, 1'020'000);
  Positions wide;  // gaps near 2^22 and bits in every width
  for (uint32_t i = 0; i < 1000; ++i) wide.push_back(i * 4'194'303 + i % 3);
  all.emplace_back(wide, kMaxCount);
  return all;
}

TEST(PositionCode, HasTheDocumentedBytesAndComesBack) {
  for (const auto& [positions, count] : cases()) {
    SCOPED_TRACE(::testing::Message() << positions.size() << " of " << count);
    const Bytes bytes = pack(positions, count);
    const size_t blocks = (positions.size() + kPositionBlock - 1) / kPositionBlock;
    EXPECT_EQ(bytes, oracle(positions, std::span(bytes).first(blocks)));
    EXPECT_EQ(unpack(bytes, count, positions.size()), positions);
  }
}

// Each block from its place alone, one bit at a time.
TEST(PositionCode, PlacesSayWhereBlocksLie) {
  for (const auto& [positions, count] : cases()) {
    const Bytes bytes = pack(positions, count);
    const auto bit_at = [&](uint64_t bit) {
      return std::to_integer<unsigned>(bytes[bit / 8]) >> (bit % 8) & 1;
    };
    PositionReader reader(bytes, count, positions.size());
    for (auto block = reader.next(); !block.empty(); block = reader.next()) {
      const PositionPlace& place = reader.place();
      uint64_t low = 8 * place.low, high = place.high, position = place.base;
      for (const uint32_t expected : block) {
        for (; bit_at(high) == 0; ++high) position += uint64_t{1} << place.parameter;
        ++high;
        for (unsigned i = 0; i < place.parameter; ++i) position += uint64_t{bit_at(low++)} << i;
        ASSERT_EQ(position++, expected);
      }
    }
    EXPECT_TRUE(reader.done());
  }
}

TEST(PositionCode, IsWithinThreePercentOfTheEntropy) {
  constexpr size_t kCount = 4'000'000;
  const auto log2_factorial = [](double n) { return std::lgamma(n + 1) / std::log(2.0); };
  // 2^-b x 0.481: where two parameters cost the same, farthest from the entropy.
  for (const double density : {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3.7e-3, 5e-3, 7.4e-3, 0.01, 0.0149,
                               0.02, 0.0296, 0.04, 0.05, 0.0584, 0.07, 0.08, 0.09, 0.1}) {
    const Positions positions = random_positions(kCount, density);
    const auto kept = static_cast<double>(positions.size());
    const double entropy =
        log2_factorial(kCount) - log2_factorial(kept) - log2_factorial(kCount - kept);
    const double bits = 8.0 * static_cast<double>(pack(positions, kCount).size());
    EXPECT_LT(bits, 1.03 * entropy) << density;
    EXPECT_GT(bits, 0.99 * entropy) << density;
  }
}

TEST(PositionCode, ParameterFollowsEachBlock) {
  constexpr size_t kCount = 1'000'000;
  Positions positions = random_positions(kCount, 1e-3);
  positions.resize(kPositionBlock);
  const Positions dense = run(positions.back() + 1, kPositionBlock);
  positions.insert(positions.end(), dense.begin(), dense.end());
  const Bytes bytes = pack(positions, kCount);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 9);
  EXPECT_EQ(std::to_integer<int>(bytes[1]), 0);
  // For random gaps, no other parameter is better.
  for (unsigned parameter = 0; parameter < 20; ++parameter) {
    const std::byte parameters[] = {static_cast<std::byte>(parameter), bytes[1]};
    EXPECT_GE(oracle(positions, parameters).size(), bytes.size()) << parameter;
  }
}

TEST(PositionCode, BoundHoldsAndGrows) {
  for (const size_t count : {1, 2, 63, 64, 1000, 5000}) {
    size_t last = 0;
    for (size_t kept = 0; kept <= count; ++kept) {
      const size_t bound = max_position_bytes(count, kept);
      EXPECT_GE(bound, last);
      last = bound;
      // At the end, at the start, evenly, and alternately near and far.
      Positions even, clustered;
      for (size_t i = 0; i < kept; ++i) even.push_back(static_cast<uint32_t>(i * count / kept));
      for (size_t i = 0; i < kept; ++i)
        clustered.push_back(
            static_cast<uint32_t>(i + (i + 1) / 2 * 2 * ((count - kept) / (kept + 1))));
      for (const Positions& positions :
           {run(static_cast<uint32_t>(count - kept), kept), run(0, kept), even, clustered}) {
        Bytes bytes(bound + 8, std::byte{0xa5});
        const size_t size = pack_positions(positions, bytes);
        ASSERT_LE(size, bound) << kept << " of " << count;
        for (size_t i = size; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], std::byte{0xa5});
      }
    }
  }
}

TEST(PositionCode, LayersOfVeryDifferentDensityKeepTheBound) {
  for (const auto& [positions, count] : cases()) {
    if (positions.empty()) continue;
    EXPECT_LE(pack(positions, positions.back() + size_t{1}).size(),
              max_position_bytes(positions.back() + size_t{1}, positions.size()));
    EXPECT_LE(max_position_bytes(count, positions.size()),
              count / 8 + positions.size() / kPositionBlock + 4);  // never worse than a bitmap
  }
}

TEST(PositionCode, RefusesEveryOtherLength) {
  for (const double density : {0.002, 0.05, 0.9}) {
    const Positions positions = random_positions(10'000, density);
    const size_t kept = positions.size();
    Bytes bytes = pack(positions, 10'000);
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_EQ(unpack(std::span(bytes).first(size), 10'000, kept), std::nullopt) << size;
    for (const int extra : {0, 1, 255}) {
      Bytes longer = bytes;
      longer.push_back(static_cast<std::byte>(extra));
      EXPECT_EQ(unpack(longer, 10'000, kept), std::nullopt);
      longer.resize(longer.size() + 20);
      EXPECT_EQ(unpack(longer, 10'000, kept), std::nullopt);
    }
    EXPECT_EQ(unpack(bytes, 10'000, kept - 1), std::nullopt);
    EXPECT_EQ(unpack(bytes, 10'000, kept + 1), std::nullopt);
    EXPECT_EQ(unpack(bytes, positions.back(), kept), std::nullopt);
    EXPECT_NE(unpack(bytes, positions.back() + size_t{1}, kept), std::nullopt);
  }
}

TEST(PositionCode, NoBitIsIgnored) {
  for (const double density : {0.002, 0.05, 0.9}) {
    const Positions positions = random_positions(5'000, density);
    Bytes bytes = pack(positions, 5'000);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      const auto got = unpack(bytes, 5'000, positions.size());
      EXPECT_NE(got, std::optional(positions)) << bit;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

// unpack checks every position that is read, also of codes that turn out to be broken.
TEST(PositionCode, SurvivesAnyBytes) {
  for (uint32_t round = 0; round < 3000; ++round) {
    const RandomKey key{.seed = 4, .stream = round};
    Bytes bytes(random_below(key, 0, 300));
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint32_t word = random_word(key, 10 + i);
      bytes[i] = static_cast<std::byte>(word >> 8 & (word & 1 ? 0xff : 0x1f));
    }
    const size_t count = round % 2 ? kMaxCount : random_below(key, 2, 5000);
    const size_t kept = random_below(key, 3, std::min<uint64_t>(count, 2000) + 1);
    (void)unpack(bytes, count, kept);
  }
}

TEST(PositionCode, ZerosThatOverflowAreRefused) {
  // b = 31 and 40 zeros: 40 x 2^31 is no position, however it is cut to 32 bits.
  Bytes bytes = {std::byte{31}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{1}};
  EXPECT_EQ(unpack(bytes, kMaxCount, 1), std::nullopt);
  bytes = {std::byte{31}, std::byte{7}, {}, {}, {}, std::byte{2}};  // one zero: 2^31 + 7
  EXPECT_EQ(unpack(bytes, kMaxCount, 1), Positions{0x80000007});
  bytes[0] = std::byte{32};
  EXPECT_EQ(unpack(bytes, kMaxCount, 1), std::nullopt);
}

}  // namespace
}  // namespace thinwire::kernel
