// Tests of RegionCoder: regions arrive as sent, in the shorter form; bad bytes are refused.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/region_coder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "codec/sparse_payload.h"
#include "core/random.h"

namespace thinwire {
namespace {

constexpr ValueFormat kFormats[] = {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16,
                                    ValueFormat::kInt8, ValueFormat::kInt2, ValueFormat::kSign};
constexpr RandomKey kKey{.use = RandomUse::kTest};

// `kept` of `count` offsets at even distances.
std::vector<uint32_t> offsets_of(size_t count, size_t kept) {
  std::vector<uint32_t> offsets(kept);
  for (size_t i = 0; i < kept; ++i) offsets[i] = static_cast<uint32_t>(i * count / kept);
  return offsets;
}

std::vector<float> values_of(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_unit(kKey, i) - 0.5f;
  return values;
}

TEST(RegionCoder, WhatIsWrittenArrivesAndTheRestIsLeft) {
  for (const ValueFormat format : kFormats)
    for (const size_t count : {1, 2, 100, 512, 1300})
      for (const size_t kept : {size_t{0}, size_t{1}, count / 10, count / 2, count}) {
        const RegionCoder coder(format);
        const auto offsets = offsets_of(count, kept);
        const auto values = values_of(kept);
        std::vector<float> left(kept);
        std::vector<std::byte> payload(coder.max_size(count, kept));
        payload.resize(coder.write(count, offsets, values, payload, left));
        const bool dense = coder.is_dense(count, kept);
        const uint8_t id = dense ? coder.dense_id() : coder.sparse_id();
        EXPECT_EQ(coder.kept(id, payload, count), dense ? count : kept);
        std::vector<float> sum(count), seen(count);
        ASSERT_TRUE(coder.add(id, payload, sum));
        ASSERT_TRUE(coder.visit(id, payload, count, [&](auto at, auto shown) {
          for (size_t i = 0; i < at.size(); ++i) seen[at[i]] = shown[i];
        }));
        EXPECT_EQ(seen, sum);
        for (size_t i = 0; i < kept; ++i) {
          EXPECT_EQ(left[i], values[i] - sum[offsets[i]]);
          if (format == ValueFormat::kFp32) {
            EXPECT_EQ(left[i], 0);
          }
          sum[offsets[i]] = 0;
        }
        EXPECT_EQ(sum, std::vector<float>(count));
      }
}

// The switch is where the other form begins to be the shorter one.
TEST(RegionCoder, BreakEvenIsWhereAllValuesTakeFewerBytes) {
  for (const ValueFormat format : {ValueFormat::kFp32, ValueFormat::kFp16, ValueFormat::kBf16}) {
    const size_t width = format == ValueFormat::kFp32 ? 4 : 2;
    const RegionCoder coder(format);
    for (const size_t count : {1, 3, 50, 4096, 30000}) {
      size_t first = 0;  // kept, dense
      for (size_t kept = 1; kept <= count; kept += 1 + count / 1000) {
        const bool dense = coder.is_dense(count, kept);
        EXPECT_TRUE(first == 0 || dense) << "once dense, dense for all that keeps more";
        if (dense && first == 0) first = kept;
        std::vector<std::byte> payload(max_sparse_size(count, kept, format));
        const auto values = values_of(kept);
        const size_t sparse = write_sparse(offsets_of(count, kept), values, format, payload);
        // Positions cost 2 bytes less than their bound at most, where they are a bitmap.
        if (!dense) {
          EXPECT_LE(sparse, width * count);
        }
        if (dense && count >= 4096) {
          EXPECT_GE(sparse + 4, width * count);
        }
      }
      ASSERT_GT(first, 0u);
      const double bits = 8 * static_cast<double>(width);
      if (count >= 4096) {
        EXPECT_NEAR(static_cast<double>(first) / static_cast<double>(count), (bits - 1) / bits,
                    0.006);
      }
    }
  }
  for (const ValueFormat format : {ValueFormat::kInt8, ValueFormat::kSign})
    EXPECT_FALSE(RegionCoder(format).is_dense(4096, 4096));
}

TEST(RegionCoder, LimitsHoldForEveryNumberOfKeptValues) {
  for (const ValueFormat format : kFormats)
    for (const size_t count : {1, 2, 3, 7, 600}) {
      const RegionCoder coder(format);
      for (size_t most = 0; most <= count; ++most) {
        std::vector<std::byte> payload(max_sparse_size(count, count, format) + 4 * count);
        for (size_t kept = 0; kept <= most; kept += 1 + count / 50)
          EXPECT_LE(coder.write(count, offsets_of(count, kept), values_of(kept), payload, {}),
                    coder.max_size(count, most));
      }
    }
}

TEST(RegionCoder, SumsOfMeansTravelAsSigns) {
  EXPECT_EQ(RegionCoder(ValueFormat::kMean).format(), ValueFormat::kSign);
}

TEST(RegionCoder, AnyBytesAreAddedOrRefused) {
  constexpr size_t kCount = 300;
  for (const ValueFormat format : kFormats) {
    const RegionCoder coder(format);
    for (const size_t kept : {30, 300}) {
      std::vector<std::byte> good(coder.max_size(kCount, kept));
      good.resize(coder.write(kCount, offsets_of(kCount, kept), values_of(kept), good, {}));
      for (const uint8_t id : {coder.sparse_id(), coder.dense_id()})
        for (size_t size = 0; size <= good.size(); ++size) {
          std::vector<std::byte> bytes(good.begin(), good.begin() + static_cast<long>(size));
          if (size > 0) bytes[size * 7 % size] ^= std::byte{0x41};
          std::vector<float> sum(kCount);
          const bool added = coder.add(id, bytes, sum).is_ok();
          const bool visited = coder
                                   .visit(id, bytes, kCount,
                                          [&](auto at, auto) {
                                            for (const uint32_t offset : at)
                                              ASSERT_LT(offset, kCount);
                                          })
                                   .is_ok();
          EXPECT_EQ(added, visited);
          if (size < good.size()) {
            EXPECT_FALSE(added);
          }
          coder.kept(id, bytes, kCount);
        }
    }
  }
}

}  // namespace
}  // namespace thinwire
