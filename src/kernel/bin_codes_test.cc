// Selection against a plain loop, byte for byte on every target; reading codes that may be
// anything.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/bin_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Bytes = std::vector<std::byte>;

struct Oracle {
  Bytes codes;
  size_t kept = 0;
  double max_sum = 0;
};

// By the definition in docs/determinism.md.
double sum_in_order(const std::vector<float>& maxima) {
  double total = 0;
  for (size_t begin = 0; begin < maxima.size(); begin += 8192) {
    std::array<double, 16> lanes = {};
    for (size_t i = begin; i < maxima.size() && i < begin + 8192; ++i) lanes[i % 16] += maxima[i];
    for (const size_t half : {8, 4, 2, 1})
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    total += lanes[0];
  }
  return total;
}

// The rule and the layout of codes as they are written down, with no regard to speed.
Oracle oracle_select(const std::vector<float>& g, const std::vector<float>& fresh, float factor,
                     size_t bin) {
  Oracle result;
  const bool wide = bin > 63;
  const auto put = [&](unsigned code) {
    result.codes.push_back(std::byte(code & 0xFF));
    if (wide) result.codes.push_back(std::byte(code >> 8));
  };
  std::vector<float> maxima;
  for (size_t begin = 0; begin < g.size(); begin += bin) {
    const size_t end = std::min(begin + bin, g.size());
    float max = 0;
    for (size_t i = begin; i < end; ++i) max = std::max(max, std::abs(g[i]));
    maxima.push_back(max);
    std::vector<unsigned> codes;
    for (size_t i = begin; i < end; ++i) {
      const float scaled = factor * fresh[i];
      const float h = g[i] + scaled;
      if (max > 0 && std::abs(h) >= max && g[i] != 0)
        codes.push_back(static_cast<unsigned>(i - begin) + (g[i] < 0 ? (wide ? 0x4000 : 0x40) : 0));
    }
    result.kept += codes.size();
    if (codes.empty()) codes.push_back(wide ? 0x3FFF : 0x3F);
    codes.back() += wide ? 0x8000 : 0x80;
    for (const unsigned code : codes) put(code);
  }
  result.max_sum = sum_in_order(maxima);
  return result;
}

enum class Data { kNormal, kSparse, kConstant, kZero, kTiny, kHuge, kWide };

std::vector<float> make(Data data, size_t count, uint32_t stream) {
  const RandomKey key{.seed = 11, .stream = stream};
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float normal = random_normal(key, i);
    switch (data) {
      case Data::kNormal:
        values[i] = normal;
        break;
      case Data::kSparse:  // long runs of zeros of both signs, so that bins are empty
        values[i] = i / 97 % 3 == 0 && normal > 1 ? normal : std::copysign(0.0f, normal);
        break;
      case Data::kConstant:
        values[i] = std::copysign(0.25f, normal);
        break;
      case Data::kZero:
        break;
      case Data::kTiny:
        values[i] = normal * 1e-44f;
        break;
      case Data::kHuge:
        values[i] = std::copysign(3e38f, normal);
        break;
      case Data::kWide:  // sums in double round, and depend on their order
        values[i] = std::ldexp(normal, static_cast<int>(i * 37 % 80) - 40);
        break;
    }
  }
  return values;
}

constexpr Data kAllData[] = {Data::kNormal, Data::kSparse, Data::kConstant, Data::kZero,
                             Data::kTiny,   Data::kHuge,   Data::kWide};

TEST(SelectBins, EqualsThePlainLoopOnEveryTarget) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const size_t bin : {1, 2, 7, 8, 9, 17, 31, 33, 48, 50, 63, 64, 65, 128, 500, 16383}) {
      for (const size_t count : {0, 1, 7, 8, 9, 49, 50, 63, 64, 65, 127, 130, 500, 1003, 33000}) {
        for (const Data data : kAllData) {
          const auto g = make(data, count, 1);
          const auto fresh = make(data, count, 2);
          for (const float factor : {0.0f, 0.5f, 1.0f}) {
            const auto want = oracle_select(g, fresh, factor, bin);
            Bytes codes(bin_code_size(bin) * count + 1, std::byte{0xEE});
            const auto got =
                select_bins(g, fresh, factor, bin, std::span(codes).first(codes.size() - 1));
            ASSERT_EQ(got.size, want.codes.size());
            ASSERT_EQ(got.kept, want.kept);
            ASSERT_EQ(got.max_sum, want.max_sum);
            ASSERT_EQ(codes.back(), std::byte{0xEE});
            codes.resize(got.size);
            ASSERT_EQ(codes, want.codes) << "bin " << bin << " count " << count;
          }
        }
      }
    }
  });
}

TEST(AddBins, AddsWhatWasSelectedAndStopsAfterTheLastBin) {
  for (const size_t bin : {1, 50, 63, 64, 500, 16383}) {
    const auto g = make(Data::kNormal, 33001, 3);
    const auto zeros = std::vector<float>(g.size());
    Bytes codes(2 * g.size() + 9);
    const size_t size = select_bins(g, zeros, 1, bin, codes).size;
    std::vector<float> out(g.size(), 5);
    ASSERT_EQ(add_bins(codes, bin, 2, out), size);
    for (size_t begin = 0; begin < g.size(); begin += bin) {  // without fresh: only the maximum
      const size_t end = std::min(begin + bin, g.size());
      size_t top = begin;
      for (size_t i = begin; i < end; ++i) top = std::abs(g[i]) > std::abs(g[top]) ? i : top;
      for (size_t i = begin; i < end; ++i)
        ASSERT_EQ(out[i], i != top ? 5 : g[i] < 0 ? 3 : 7) << "bin " << bin << " at " << i;
    }
  }
}

template <typename... Codes>
Bytes bytes_of(Codes... codes) {
  return {std::byte(codes)...};
}

TEST(AddBins, RefusesWhatBreaksARule) {
  std::vector<float> out(7);  // bins of 5: one of 5 and one of 2
  const auto taken = [&](const Bytes& codes) { return add_bins(codes, 5, 1, out); };
  EXPECT_EQ(taken(bytes_of(0x84, 0xC1)), 2u);              // +4, -1
  EXPECT_EQ(taken(bytes_of(0x00, 0x43, 0x84, 0x81)), 4u);  // three in the first bin
  EXPECT_EQ(taken(bytes_of(0xBF, 0xBF)), 2u);              // both empty
  EXPECT_EQ(taken(bytes_of(0x84, 0xC1, 0x99)), 2u);        // what follows is not looked at
  EXPECT_EQ(taken({}), std::nullopt);
  EXPECT_EQ(taken(bytes_of(0x84)), std::nullopt);              // second bin missing
  EXPECT_EQ(taken(bytes_of(0x84, 0x01)), std::nullopt);        // last flag missing
  EXPECT_EQ(taken(bytes_of(0x85, 0x81)), std::nullopt);        // offset 5
  EXPECT_EQ(taken(bytes_of(0x84, 0x82)), std::nullopt);        // offset 2 in the short bin
  EXPECT_EQ(taken(bytes_of(0x03, 0x83, 0x81)), std::nullopt);  // twice the same
  EXPECT_EQ(taken(bytes_of(0x03, 0x82, 0x81)), std::nullopt);  // falling
  EXPECT_EQ(taken(bytes_of(0x03, 0xBF, 0x81)), std::nullopt);  // empty, after one
  EXPECT_EQ(taken(bytes_of(0x3F, 0x81)), std::nullopt);        // empty without the last flag
  EXPECT_EQ(taken(bytes_of(0xFF, 0x81)), std::nullopt);        // empty and negative
  EXPECT_EQ(add_bins({}, 5, 1, {}), 0u);
}

TEST(AddBins, RefusesHalfACode) {
  std::vector<float> out(70);
  EXPECT_EQ(add_bins(bytes_of(0x45, 0x80), 70, 1, out), 2u);
  EXPECT_EQ(add_bins(bytes_of(0x45, 0x00, 0x80), 70, 1, out), std::nullopt);
  EXPECT_EQ(add_bins(bytes_of(0x45), 70, 1, out), std::nullopt);
  EXPECT_EQ(add_bins(bytes_of(0x46, 0x80), 70, 1, out), std::nullopt);  // offset 70
}

// Any bytes: an answer, and nothing outside `out` is touched (address sanitizer watches).
TEST(AddBins, SurvivesRandomBytes) {
  const RandomKey key{.seed = 5};
  size_t accepted = 0, refused = 0;
  for (uint32_t round = 0; round < 20000; ++round) {
    const size_t bin =
        round % 2 ? 1 + random_word(key, 3 * round) % 63 : 64 + random_word(key, 3 * round) % 900;
    std::vector<float> out(random_word(key, 3 * round + 1) % 200);
    Bytes codes(random_word(key, 3 * round + 2) % 40);
    for (size_t i = 0; i < codes.size(); ++i)
      codes[i] = std::byte(random_word({.seed = 6, .stream = round}, i));
    const auto taken = add_bins(codes, bin, 1, out);
    taken ? ++accepted : ++refused;
    if (taken) {
      ASSERT_LE(*taken, codes.size());
    }
  }
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace thinwire::kernel
