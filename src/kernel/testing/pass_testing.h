// For tests of passes: values, comparisons bit for bit, and every length on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/aligned.h"
#include "core/random.h"
#include "kernel/for_each_target.h"
#include "kernel/vector_moments.h"

namespace thinwire::kernel {

using Vector = AlignedVector<float>;

// Around every border, and long enough for non-temporal stores: of what is kept, and of all.
inline constexpr size_t kCounts[] = {
    0, 1, 15, 16, 17, 33, 8191, 8192, 8207, 40000, (size_t{1} << 16) + 5, (size_t{1} << 21) + 5};

// The first `count` values of a stream that is drawn once.
inline Vector normals(size_t count, uint32_t stream) {
  static std::map<uint32_t, Vector> drawn;
  Vector& values = drawn[stream];
  for (size_t i = values.size(); i < count; ++i)
    values.push_back(random_normal({.seed = 7, .stream = stream}, i));
  return Vector(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
}

inline void expect_same_bits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  size_t different = 0;
  for (size_t i = 0; i < got.size(); ++i)
    different += std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]);
  ASSERT_EQ(different, 0u);
}

inline void expect_moments_of(const Moments& got, std::span<const float> values) {
  const Moments want = moments(values);
  EXPECT_EQ(got.abs_sum, want.abs_sum);
  EXPECT_EQ(got.square_sum, want.square_sum);
  EXPECT_EQ(got.abs_max, want.abs_max);
  EXPECT_EQ(got.finite, want.finite);
}

inline void on_all(const std::function<void(size_t count)>& body) {
  for (const size_t count : kCounts)
    for_each_target([&](std::string_view target) {
      SCOPED_TRACE(std::to_string(count) + std::string(" ").append(target));
      body(count);
    });
}

}  // namespace thinwire::kernel
