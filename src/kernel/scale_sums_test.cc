// Scaling with a check: every length, every place for a NaN or Inf, products that overflow.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/scale_sums.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Limits = std::numeric_limits<float>;

TEST(ScaleSums, ScalesOnEveryTarget) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t count = 0; count <= 67; ++count) {
      std::vector<float> values(count + 1, 0.7f);
      for (size_t i = 0; i < count; ++i) values[i] = 0.3f * static_cast<float>(i) - 7;
      std::vector<float> expected = values;
      for (size_t i = 0; i < count; ++i) expected[i] *= 0.2f;
      EXPECT_TRUE(scale_sums(std::span(values).first(count), 0.2f));
      EXPECT_EQ(values, expected);
    }
  });
}

TEST(ScaleSums, ReportsEachValueThatIsNotFinite) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()})
      for (size_t at = 0; at < 37; ++at) {
        std::vector<float> values(37, Limits::max());
        EXPECT_TRUE(scale_sums(values, 0.5f));
        values[at] = bad;
        EXPECT_FALSE(scale_sums(values, 0.5f));
      }
    std::vector<float> values(37, Limits::max());
    EXPECT_FALSE(scale_sums(values, 2));
  });
}

}  // namespace
}  // namespace thinwire::kernel
