// Sorts the columns of a few long rows: what the median and its relatives over ranks start from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire::kernel {

// `rows` is `count` rows of equal length, one after another; `sorted` is as many, as long as the
// columns that are wanted. Row r of `sorted` receives the r-th smallest of each of the columns from
// `begin` on. The order is total: -0.0 comes before 0.0, NaN comes before or after all numbers,
// by its sign.
//
// A sorting network [Batcher, 1968; Knuth, TAOCP 5.2.2 M] compares whole vectors: about
// count (log2 count)^2 / 4 minima and maxima per column, 63 at 16 rows, and no branch.
// REQUIRES: count > 0; the columns are there.
void sort_columns(std::span<const float> rows, size_t count, size_t begin, std::span<float> sorted);

}  // namespace thinwire::kernel
