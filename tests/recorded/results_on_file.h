// Compares a table of results with the one on file, line by line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace thinwire::testing {

// `recorder` is the program that writes such a file.
inline void expect_those_on_file(const std::vector<std::string>& now, const std::string& name,
                                 const std::string& recorder) {
  std::ifstream file(std::string(THINWIRE_RECORDED "/") + name);
  ASSERT_TRUE(file) << "record it: build/" << recorder << " > tests/recorded/" << name;
  std::string line;
  for (size_t i = 0; i < now.size(); ++i) {
    ASSERT_TRUE(std::getline(file, line)) << "more cases than on file, from " << now[i];
    EXPECT_EQ(now[i], line) << "line " << i + 1;
  }
  EXPECT_FALSE(std::getline(file, line)) << "fewer cases than on file, from " << line;
}

}  // namespace thinwire::testing
