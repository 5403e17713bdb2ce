// Alignment of vectors of all sizes, around the border between small and huge pages.
// SPDX-License-Identifier: Apache-2.0
#include "core/aligned.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace thinwire {
namespace {

TEST(Aligned, VectorsStartOnACacheLine) {
  for (const size_t count : {1, 3, 1000, (4 << 20) / 4 - 1, (4 << 20) / 4, 3'000'001}) {
    AlignedVector<float> values(count, 2.0f);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(values.data()) % kCacheLine, 0u) << count;
    values.push_back(3.0f);  // grows: moves, and gives the old memory back
    EXPECT_EQ(reinterpret_cast<uintptr_t>(values.data()) % kCacheLine, 0u) << count;
    EXPECT_EQ(values[count - 1], 2.0f);
    const AlignedVector<float> moved = std::move(values);
    EXPECT_EQ(moved.back(), 3.0f);
  }
}

TEST(Aligned, NothingIsAllocatedForNothing) {
  const AlignedVector<float> values(0);
  EXPECT_TRUE(values.empty());
}

}  // namespace
}  // namespace thinwire
