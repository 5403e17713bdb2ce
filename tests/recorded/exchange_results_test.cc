// What any method gives, remembers and sends is what is on file, to the bit.
// SPDX-License-Identifier: Apache-2.0
#include "recorded/exchange_results.h"

#include <gtest/gtest.h>

#include <fstream>

namespace thinwire::testing {
namespace {

TEST(ExchangeResults, AreThoseOnFile) {
  std::ifstream file(THINWIRE_RECORDED "/exchange_results.txt");
  ASSERT_TRUE(file) << "record it: build/record_exchanges > tests/recorded/exchange_results.txt";
  const Lines now = exchange_results();
  std::string line;
  for (size_t i = 0; i < now.size(); ++i) {
    ASSERT_TRUE(std::getline(file, line)) << "more cases than on file, from " << now[i];
    EXPECT_EQ(now[i], line) << "line " << i + 1;
  }
  EXPECT_FALSE(std::getline(file, line)) << "fewer cases than on file, from " << line;
}

}  // namespace
}  // namespace thinwire::testing
