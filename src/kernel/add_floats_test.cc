// Adding floats from bytes: every length, odd alignment, every place for a NaN or Inf.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/add_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

std::vector<std::byte> shifted_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float) + 1);
  if (!values.empty()) std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(float));
  return bytes;
}

TEST(AddFloats, AddsOnEveryTarget) {
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    for (size_t count = 0; count <= 67; ++count) {
      std::vector<float> values(count), out(count + 1, 0.7f);
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(std::sin(i + 0.5) * 1e3);
      const auto bytes = shifted_bytes(values);
      EXPECT_TRUE(add_floats(std::span(bytes).subspan(1), 0.3f, std::span(out).first(count)));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 0.7f + 0.3f * values[i]);
      EXPECT_EQ(out.back(), 0.7f);
    }
  });
}

TEST(AddFloats, ReportsEachValueThatIsNotFinite) {
  using Limits = std::numeric_limits<float>;
  for_each_target([](std::string_view target) {
    SCOPED_TRACE(target);
    std::vector<float> out(37);
    for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      for (size_t at = 0; at < out.size(); ++at) {
        std::vector<float> values(out.size(), Limits::max());
        EXPECT_TRUE(add_floats(std::as_bytes(std::span(values)), 0, out));
        values[at] = bad;
        EXPECT_FALSE(add_floats(std::as_bytes(std::span(values)), 0, out));
      }
    }
  });
}

}  // namespace
}  // namespace thinwire::kernel
