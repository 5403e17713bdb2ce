// The upper median of the columns of 16 and 64 rows: by the sorting network, and by a plain loop.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "bench/side_by_side.h"
#include "core/random.h"
#include "kernel/sort_columns.h"

namespace thinwire {
namespace {

constexpr size_t kColumns = size_t{1} << 18, kBlock = 512;

std::vector<float> rows_of_normals(size_t count) {
  std::vector<float> rows(count * kColumns);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = random_normal({.seed = 1}, i);
  return rows;
}

void median_by_network(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> rows = rows_of_normals(count);
  std::vector<float> sorted(count * kBlock), result(kColumns);
  bench::side_by_side(state, rows.size(), nullptr, [&] {
    for (size_t begin = 0; begin < kColumns; begin += kBlock) {
      kernel::sort_columns(rows, count, begin, sorted);
      std::copy_n(sorted.data() + count / 2 * kBlock, kBlock, result.data() + begin);
    }
    benchmark::DoNotOptimize(result.data());
  });
}

void median_by_loop(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> rows = rows_of_normals(count);
  std::vector<float> column(count), result(kColumns);
  bench::side_by_side(state, rows.size(), nullptr, [&] {
    for (size_t i = 0; i < kColumns; ++i) {
      for (size_t row = 0; row < count; ++row) column[row] = rows[row * kColumns + i];
      const auto middle = column.begin() + static_cast<std::ptrdiff_t>(count / 2);
      std::nth_element(column.begin(), middle, column.end());
      result[i] = *middle;
    }
    benchmark::DoNotOptimize(result.data());
  });
}

THINWIRE_BENCH(median_by_network)->Arg(16)->Arg(64);
THINWIRE_BENCH(median_by_loop)->Arg(16)->Arg(64);

}  // namespace
}  // namespace thinwire
