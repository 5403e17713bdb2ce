// Tests of what ranks compare of their tensors.
// SPDX-License-Identifier: Apache-2.0
#include "train/named_tensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace thinwire {
namespace {

TEST(NamedTensors, LinesDifferWhereTensorsDo) {
  const std::vector<NamedTensor> tensors = {{"a", torch::zeros(2)}, {"b", torch::ones(3)}};
  const std::string lines = checksum_lines(tensors);
  const size_t second = lines.find("\nb ");
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(lines.substr(0, 2), "a ");
  EXPECT_EQ(lines.back(), '\n');

  tensors[1].tensor[2] = 2;
  const std::string other = checksum_lines(tensors);
  EXPECT_EQ(other.substr(0, second), lines.substr(0, second));
  EXPECT_NE(other, lines);
  tensors[1].tensor[2] = 1;
  EXPECT_EQ(checksum_lines(tensors), lines);
  EXPECT_EQ(checksum_lines({}), "");
}

}  // namespace
}  // namespace thinwire
