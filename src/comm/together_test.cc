// Tests of together: all ranks throw, whatever one of them threw or sent.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "thinwire/group.h"

namespace thinwire {
namespace {

using testing::HasSubstr;

// What `call` throws.
std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(Together, WhatIsNoStdExceptionIsToldToo) {
  run_local(3, [](Group& group) {
    const auto error = error_of([&] {
      together(group, [&] {
        if (group.rank() == 1) throw 7;
      });
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kContract);
    EXPECT_THAT(error->what(), HasSubstr("no std::exception"));
  });
}

TEST(Together, ACodeThatDoesNotExistIsCorrupt) {
  for (const int code : {0, 12, 255})
    run_local(2, [&](Group& group) {
      const std::array text{static_cast<std::byte>(code), std::byte{'x'}};
      const auto error = error_of([&] {
        if (group.rank() == 1)
          group.all_gather_v(text);
        else
          together(group, [] {});
      });
      if (group.rank() == 1) return;
      ASSERT_TRUE(error.has_value()) << code;
      EXPECT_EQ(error->code(), ErrorCode::kCorrupt) << code;
      EXPECT_THAT(error->what(), HasSubstr("error code " + std::to_string(code))) << code;
    });
}

}  // namespace
}  // namespace thinwire
