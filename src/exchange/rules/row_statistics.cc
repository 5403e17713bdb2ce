// Statistics of rows, block by block, so that a block of every row stays in cache for all its
// pairs.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/row_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/pair_sums.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kBlock = 4096;  // values: 256 KiB of 16 rows

}  // namespace

size_t count_statistics(RowStatistics kind, size_t ranks) noexcept {
  switch (kind) {
    case RowStatistics::kSquareNorms:
      return ranks;
    case RowStatistics::kSquareDistances:
      return ranks * (ranks - 1) / 2;
    case RowStatistics::kProducts:
      return ranks * (ranks + 1) / 2;
    case RowStatistics::kOwn:
      break;
  }
  return 0;
}

void add_statistics_of(RowStatistics kind, std::span<const float> rows, size_t ranks,
                       std::span<double> sums) noexcept {
  const size_t count = rows.size() / ranks;
  if (kind == RowStatistics::kSquareNorms) {
    for (size_t rank = 0; rank < ranks; ++rank)
      sums[rank] += measure(rows.subspan(rank * count, count)).square_sum;
    return;
  }
  const bool distances = kind == RowStatistics::kSquareDistances;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const auto block = [&](size_t rank) {
      return rows.subspan(rank * count + begin, std::min(kBlock, count - begin));
    };
    size_t pair = 0;
    for (size_t a = 0; a < ranks; ++a)
      for (size_t b = distances ? a + 1 : a; b < ranks; ++b)
        sums[pair++] += distances ? kernel::square_distance(block(a), block(b))
                                  : kernel::product(block(a), block(b));
  }
}

PairTable PairTable::first(size_t ranks) const {
  PairTable table(ranks, 0.0);
  for (size_t a = 0; a < ranks; ++a)
    for (size_t b = a; b < ranks; ++b) table.set(a, b, at(a, b));
  return table;
}

PairTable square_distances(std::span<const double> statistics, size_t ranks) {
  PairTable table(ranks, 0.0);
  size_t pair = 0;
  for (size_t a = 0; a < ranks; ++a)
    for (size_t b = a + 1; b < ranks; ++b, ++pair) {
      const double given = statistics[pair];
      table.set(a, b, std::isfinite(given) && given >= 0 ? given : kInfinity);
    }
  return table;
}

PairTable products(std::span<const double> statistics, size_t ranks) {
  PairTable table(ranks, 0.0);
  size_t pair = 0;
  for (size_t a = 0; a < ranks; ++a)
    for (size_t b = a; b < ranks; ++b, ++pair)
      table.set(a, b, std::isfinite(statistics[pair]) ? statistics[pair] : kInfinity);
  return table;
}

std::vector<size_t> finite_rows(const PairTable& products) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < products.ranks(); ++row)
    if (products.at(row, row) >= 0 && std::isfinite(products.at(row, row)) &&
        std::all_of(rows.begin(), rows.end(),
                    [&](size_t other) { return std::isfinite(products.at(row, other)); }))
      rows.push_back(row);
  return rows;
}

}  // namespace thinwire
