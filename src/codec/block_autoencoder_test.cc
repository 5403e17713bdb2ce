// Tests of the linear autoencoder: means of codes, projections, training, what is left behind whole
// blocks.
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_autoencoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire {
namespace {

using Values = std::vector<float>;

Values normal(size_t count, uint64_t seed) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = seed}, i);
  return values;
}

double energy(const Values& values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return sum;
}

struct Coded {
  Coded(BlockAutoencoder& autoencoder, const Values& values)
      : codes(autoencoder.code_size(values.size())), decoded(values.size()), left(values) {
    autoencoder.encode(values, codes, decoded);
    for (size_t i = 0; i < left.size(); ++i) left[i] -= decoded[i];
  }
  Values codes, decoded, left;
};

// By the definition: V^T x of a block, and V V^T x, in double.
TEST(BlockAutoencoder, CodesAreProductsWithTheMatrix) {
  constexpr size_t kBlock = 12, kCode = 3, kBlocks = 5;
  BlockAutoencoder autoencoder(kBlock, kCode);
  const Values values = normal(kBlock * kBlocks, 1);
  const Coded got(autoencoder, values);
  const auto v = autoencoder.matrix();
  const double norm = basis_norm(kBlock);
  for (size_t b = 0; b < kBlocks; ++b) {
    Values decoded(kBlock);
    for (size_t c = 0; c < kCode; ++c) {
      double code = 0;
      for (size_t i = 0; i < kBlock; ++i)
        code += v[c * kBlock + i] / norm * values[b * kBlock + i] / norm;
      EXPECT_NEAR(got.codes[c * kBlocks + b], code, 1e-6);
      for (size_t i = 0; i < kBlock; ++i)
        decoded[i] += static_cast<float>(code * v[c * kBlock + i]);
    }
    for (size_t i = 0; i < kBlock; ++i) EXPECT_NEAR(got.decoded[b * kBlock + i], decoded[i], 1e-6);
  }
}

TEST(BlockAutoencoder, AtFirstItHasPolynomialsExactly) {
  BlockAutoencoder autoencoder(32, 3);
  Values values(32);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<float>(i);
    values[i] = 3 + 0.5f * x - 0.01f * x * x;
  }
  EXPECT_LT(energy(Coded(autoencoder, values).left), 1e-11 * energy(values));
  BlockAutoencoder shorter(32, 2);
  EXPECT_GT(energy(Coded(shorter, values).left), 1e-4 * energy(values));
}

// What makes sums of codes sums of what ranks sent.
TEST(BlockAutoencoder, TheMeanOfCodesDecodesToTheMeanOfDecoded) {
  for (const size_t count : {32, 64, 75, 33, 5, 1}) {
    BlockAutoencoder autoencoder(32, 4);
    const Coded a(autoencoder, normal(count, 1)), b(autoencoder, normal(count, 2));
    Values mean(a.codes.size()), decoded(count);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] = (a.codes[i] + b.codes[i]) / 2;
    autoencoder.decode(mean, decoded);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(decoded[i], (a.decoded[i] + b.decoded[i]) / 2, 2e-6) << count << " " << i;
  }
}

// With any matrix, and any length of what is left behind the whole blocks.
TEST(BlockAutoencoder, LeavesNoMoreThanThereWas) {
  for (const size_t code : {1, 3, 16})
    for (size_t count = 0; count < 80; ++count) {
      BlockAutoencoder autoencoder(16, code);
      Values trained(16 * code);
      for (uint64_t step = 0; step < 3; ++step) {
        autoencoder.learn(normal(16 * 7, 10 + step), trained);
        autoencoder.set_matrix(trained);
      }
      const Values values = normal(count, 5);
      const double left = energy(Coded(autoencoder, values).left);
      EXPECT_LE(left, energy(values) * (1 + 1e-6));
      if (code == 16 || count <= code) {
        EXPECT_LE(left, 1e-10 * energy(values)) << "as many floats as values";
      }
    }
}

TEST(BlockAutoencoder, CodesOfWhatIsLeftBehindFollowTheMatrix) {
  BlockAutoencoder used(16, 2), fresh(16, 2);
  const Values values = normal(11, 1);
  const Coded before(used, values);
  Values matrix(32);
  used.learn(normal(160, 2), matrix);
  used.set_matrix(matrix);
  fresh.set_matrix(matrix);
  const Coded after(used, values);
  EXPECT_NE(after.codes, before.codes);
  EXPECT_EQ(after.codes, Coded(fresh, values).codes);
}

TEST(BlockAutoencoder, ACodeIsNoLongerThanItsValues) {
  const auto size = [](size_t values) { return BlockAutoencoder::code_size(values, 16, 4); };
  EXPECT_EQ(size(0), 0u);
  EXPECT_EQ(size(3), 3u);
  EXPECT_EQ(size(15), 4u);
  EXPECT_EQ(size(16), 4u);
  EXPECT_EQ(size(18), 6u);
  EXPECT_EQ(size(32), 8u);
  for (const size_t block : {2, 5, 16})
    for (const size_t code : {1, 2, 4, 5})
      for (size_t values = 0; code <= block && values < 100; ++values) {
        size_t most = 0;
        for (size_t one = 0; one <= values; ++one)
          most = std::max(most, BlockAutoencoder::code_size(one, block, code) +
                                    BlockAutoencoder::code_size(values - one, block, code));
        EXPECT_EQ(BlockAutoencoder::most_codes_of_two(values, block, code), most)
            << values << " in blocks of " << block << ", codes of " << code;
      }
}

// Blocks are mixtures of two patterns, and noise a hundred times weaker.
TEST(BlockAutoencoder, TrainingFindsWhatBlocksAreMadeOf) {
  constexpr size_t kBlock = 32, kBlocks = 20;
  BlockAutoencoder autoencoder(kBlock, 2);
  const Values first = normal(kBlock, 1), second = normal(kBlock, 2);
  const auto blocks = [&](uint64_t step) {
    Values values;
    for (size_t b = 0; b < kBlocks; ++b) {
      const float one = random_normal({.seed = 3, .step = step}, 2 * b);
      const float two = random_normal({.seed = 3, .step = step}, 2 * b + 1);
      const Values noise = normal(kBlock, 1000 * step + b);
      for (size_t i = 0; i < kBlock; ++i)
        values.push_back(1e-4f * (one * first[i] + two * second[i] + 0.01f * noise[i]));
    }
    return values;
  };
  const Values judged = blocks(0);
  const double before = energy(Coded(autoencoder, judged).left) / energy(judged);
  EXPECT_GT(before, 0.5);
  Values matrix(2 * kBlock);
  for (uint64_t step = 1; step <= 60; ++step) {
    autoencoder.learn(blocks(step), matrix);
    autoencoder.set_matrix(matrix);
  }
  EXPECT_LT(energy(Coded(autoencoder, judged).left) / energy(judged), 3e-4);
}

// Training on nothing, zeros, and what would overflow or vanish if it were squared.
TEST(BlockAutoencoder, TrainingGoesByDirectionsAndNotBySize) {
  BlockAutoencoder autoencoder(8, 2);
  const Values before(autoencoder.matrix().begin(), autoencoder.matrix().end());
  Values usual(16), scaled(16);
  autoencoder.learn({}, usual);
  EXPECT_EQ(usual, before);
  autoencoder.learn(Values(8), usual);
  EXPECT_EQ(usual, before);
  Values blocks = normal(24, 1);
  autoencoder.learn(blocks, usual);
  EXPECT_NE(usual, before);
  for (const float factor : {0x1p120f, 0x1p-90f}) {
    Values other = blocks;
    for (float& x : other) x *= factor;
    autoencoder.learn(other, scaled);
    EXPECT_EQ(scaled, usual);
  }
}

TEST(BlockAutoencoder, WhatCannotBeDecodedHasACodeOfZeros) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const size_t count : {8, 5}) {
    for (const float size : {kMax, 1e-40f}) {
      BlockAutoencoder autoencoder(8, 2);
      Values values(count, size);
      const Coded got(autoencoder, values);
      EXPECT_EQ(got.codes, Values(2)) << size;
      EXPECT_EQ(got.decoded, Values(count));
    }
    BlockAutoencoder autoencoder(8, 2);
    const Coded got(autoencoder, Values(count, kMax / 4));
    for (const float x : got.left) EXPECT_LE(std::abs(x), 1e-6f * kMax);
    // Decodes to less than half of kMax, and differs from that by more than kMax.
    Values one_sided(count, -0.6f * kMax);
    one_sided[0] = kMax;
    BlockAutoencoder means(8, 1);
    for (const float x : Coded(means, one_sided).left) EXPECT_TRUE(std::isfinite(x)) << count;
  }
}

TEST(BlockAutoencoder, EveryTargetHasTheSameBits) {
  const auto run = [] {
    BlockAutoencoder autoencoder(32, 3);
    Values matrix(96), all;
    for (uint64_t step = 0; step < 3; ++step) {
      autoencoder.learn(normal(32 * 9, step), matrix);
      autoencoder.set_matrix(matrix);
      const Coded got(autoencoder, normal(110, 50 + step));
      for (const Values* part :
           std::initializer_list<const Values*>{&matrix, &got.codes, &got.decoded})
        all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  };
  const Values expected = run();
  kernel::for_each_target([&](std::string_view target) { EXPECT_EQ(run(), expected) << target; });
}

}  // namespace
}  // namespace thinwire
