// Means of parts of sorted columns.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/sorted_columns.h"

#include "exchange/rules/mean_weight.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"

namespace thinwire {

void mean_of_rows(const SortedBlock& sorted, size_t first, size_t last, std::span<float> result) {
  const float weight = mean_weight(last - first);
  std::copy_n(sorted.row(first).begin(), result.size(), result.begin());
  kernel::scale(result, weight);
  for (size_t row = first + 1; row < last; ++row)
    kernel::add_floats(std::as_bytes(sorted.row(row)), weight, result);
}

// What is farthest from the median stands at an end of the column.
void mean_around_median(const SortedBlock& sorted, size_t count, std::span<float> result) {
  const size_t rows = sorted.rows;
  for (size_t i = 0; i < result.size(); ++i) {
    const auto value = [&](size_t row) -> double { return sorted.row(row)[i]; };
    const double median = 0.5 * value((rows - 1) / 2) + 0.5 * value(rows / 2);
    size_t first = 0, last = rows;
    while (last - first > count)
      median - value(first) > value(last - 1) - median ? ++first : --last;
    double sum = 0;
    for (size_t row = first; row < last; ++row) sum += value(row);
    result[i] = static_cast<float>(sum / static_cast<double>(count));
  }
}

}  // namespace thinwire
