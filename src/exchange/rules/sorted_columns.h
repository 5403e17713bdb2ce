// ColumnRule: the base of rules that decide coordinate by coordinate, and the sorting of columns
// that they share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/aligned.h"
#include "core/parallel_for.h"
#include "exchange/rules/combine.h"
#include "kernel/sort_columns.h"

namespace thinwire {

inline constexpr size_t kSortedColumns = 512;  // of a block: 128 KiB at 64 rows

// Some columns of all rows, sorted: row r holds the r-th smallest value of each column.
struct SortedBlock {
  std::span<const float> values;
  size_t rows;

  size_t width() const noexcept { return values.size() / rows; }
  std::span<const float> row(size_t r) const noexcept {
    return values.subspan(r * width(), width());
  }
};

// Calls body(sorted block, its part of `result`) for all columns of `rows`, on several threads if
// there are many. `result` may be the first row. body must not throw.
template <class Body>
void for_sorted_columns(std::span<const float> rows, size_t ranks, std::span<float> result,
                        const Body& body) {
  parallel_for(result.size(), kSortedColumns, [&](size_t begin, size_t end) {
    AlignedVector<float> room(ranks * std::min(kSortedColumns, end - begin));
    for (; begin < end; begin += kSortedColumns) {
      const size_t width = std::min(kSortedColumns, end - begin);
      const auto sorted = std::span(room).first(ranks * width);
      kernel::sort_columns(rows, ranks, begin, sorted);
      body(SortedBlock{.values = sorted, .rows = ranks}, result.subspan(begin, width));
    }
  });
}

// The mean of rows [first, last) of a block, in fp32 and in this order. Each is multiplied by
// 1/(last - first) before it is added, so that no sum of finite values overflows by much.
void mean_of_rows(const SortedBlock& sorted, size_t first, size_t last, std::span<float> result);

// In every column the mean of the `count` values that are nearest to the median, in double; of
// values equally near the smaller. The median is the mean of the two middle values if rows are
// even.
void mean_around_median(const SortedBlock& sorted, size_t count, std::span<float> result);

// A rule that makes one number of a sorted column.
class ColumnRule : public Combine {
 public:
  bool wants_rows() const noexcept final { return true; }

  void combine(std::span<const float> rows, size_t ranks, std::span<const float> /*none*/,
               std::span<float> result) const final {
    for_sorted_columns(rows, ranks, result,
                       [this](const SortedBlock& sorted, std::span<float> of_block) {
                         of_sorted(sorted, of_block);
                       });
  }

 protected:
  virtual void of_sorted(const SortedBlock& sorted, std::span<float> result) const = 0;
};

}  // namespace thinwire
