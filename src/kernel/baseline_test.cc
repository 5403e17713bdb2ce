// Tests that the loops with which benchmarks compare do the work for which they are timed.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/baseline.h"

#include <gtest/gtest.h>

#include <vector>

namespace thinwire::kernel {
namespace {

TEST(Baseline, ScanAndStream) {
  for (size_t count : {0, 1, 7, 8, 33, 1000}) {
    std::vector<float> values(count), target(count, 1.0f);
    float sum = 0;
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i % 5) - 2;
      sum += std::abs(values[i]);
    }
    EXPECT_EQ(baseline_scan(values), sum);
    baseline_stream(values, target);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(target[i], 1 + values[i]);
  }
}

}  // namespace
}  // namespace thinwire::kernel
