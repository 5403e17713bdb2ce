// Tables: a line per sample, with columns of numbers and columns of categories.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/row_set.h"

namespace thinwire {

// Features are samples x columns: first the numbers, then the categories by their numbers.
struct TablePair {
  Rows train;
  Rows test;
  std::vector<int64_t> categories;  // how many each of those columns has
};

// The census data Adult [Kohavi and Becker, 1996]. Numbers have mean 0 and deviation 1 over the
// training file, whose categories are numbered in the order of their bytes; "?", which stands for a
// missing value, is one of them. Label 1: more than 50,000 dollars. Throws Error: kIo, or kCorrupt
// with file, line and column.
TablePair read_adult(const std::string& train, const std::string& test);

}  // namespace thinwire
