// Tests of patterns of tensor names, against the results of Python's fnmatchcase.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "thinwire/tensor_rule.h"

namespace thinwire {
namespace {

// Those of kNames that fit.
std::vector<std::string> fitting(const char* pattern) {
  static const std::vector<std::string> names = {
      "", "a", "ab", "b.bias", "a.bias.x", "A.bias", "[x]", "a]b", "a-c", "0.weight", "10.weight"};
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (fits_pattern(name, pattern)) found.push_back(name);
  return found;
}

using Names = std::vector<std::string>;

TEST(TensorPattern, SaysWhatFnmatchcaseSays) {
  EXPECT_EQ(fitting(""), Names({""}));
  EXPECT_EQ(fitting("a"), Names({"a"}));
  EXPECT_EQ(fitting("?"), Names({"a"}));
  EXPECT_EQ(fitting("*.bias"), Names({"b.bias", "A.bias"}));
  EXPECT_EQ(fitting("*.bias*"), Names({"b.bias", "a.bias.x", "A.bias"}));
  EXPECT_EQ(fitting("a*"), Names({"a", "ab", "a.bias.x", "a]b", "a-c"}));
  EXPECT_EQ(fitting("*a*b*"), Names({"ab", "a.bias.x", "a]b"}));
  EXPECT_EQ(fitting("**b"), Names({"ab", "a]b"}));
  EXPECT_EQ(fitting("[ab].*"), Names({"b.bias", "a.bias.x"}));
  EXPECT_EQ(fitting("[!a-z].*"), Names({"A.bias", "0.weight"}));
  EXPECT_EQ(fitting("[0-9].weight"), Names({"0.weight"}));
  EXPECT_EQ(fitting("[z-a]*"), Names());
  EXPECT_EQ(fitting("[!z-a]"), Names({"a"}));
  EXPECT_EQ(fitting("a[]-]?"), Names({"a]b", "a-c"}));
  EXPECT_EQ(fitting("[[]x]"), Names({"[x]"}));
  EXPECT_EQ(fitting("[x]"), Names());
  EXPECT_EQ(fitting("[x"), Names());
  EXPECT_EQ(fitting("[*"), Names({"[x]"}));
  EXPECT_EQ(fitting("a[a-]c"), Names({"a-c"}));
  EXPECT_EQ(fitting("a[--0]c"), Names({"a-c"}));
}

TEST(TensorPattern, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(fits_pattern(std::string(5000, 'a') + "b", pattern));
}

}  // namespace
}  // namespace thinwire
