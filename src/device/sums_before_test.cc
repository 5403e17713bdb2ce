// Sums of one segment, of several, and of more than a segment of segments.
// SPDX-License-Identifier: Apache-2.0
#include "device/sums_before.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "device/testing/host_kernels.h"
#include "device/work_grid.h"

namespace thinwire::device {
namespace {

std::vector<uint64_t> some_numbers(size_t count) {
  std::vector<uint64_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = i * 2654435761u % 1000;
  return numbers;
}

TEST(SumsBefore, AreExact) {
  for (const size_t count : {0, 1, 8, 2047, 2048, 2049, 20011, 2048 * 2048 + 1}) {
    SCOPED_TRACE(std::to_string(count));
    std::vector<uint64_t> numbers = some_numbers(count), expected(count);
    std::exclusive_scan(numbers.begin(), numbers.end(), expected.begin(), uint64_t{0});
    const uint64_t sum = std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
    numbers.resize(sum_room(count));
    uint64_t total = 7;
    HostLauncher launcher(count % 2 == 0);
    sum_before(launcher, numbers.data(), count, &total);
    numbers.resize(count);
    ASSERT_EQ(numbers, expected);
    ASSERT_EQ(total, sum);
  }
}

// Blocks go on in strides of all blocks.
TEST(SumsBefore, OneBlockMayTakeSeveralSegments) {
  const std::vector<uint64_t> given = some_numbers(3 * kSumSegment + 5);
  std::vector<uint64_t> numbers = given, totals(4);
  HostLauncher launcher;
  launch(launcher, "selection/sum_before", kOneBlock, numbers.data(), uint64_t{numbers.size()},
         totals.data());
  for (size_t segment = 0; segment < totals.size(); ++segment) {
    uint64_t sum = 0;
    for (size_t i = segment * kSumSegment; i < std::min(given.size(), (segment + 1) * kSumSegment);
         ++i) {
      ASSERT_EQ(numbers[i], sum);
      sum += given[i];
    }
    EXPECT_EQ(totals[segment], sum);
  }
}

}  // namespace
}  // namespace thinwire::device
