// Statistics of rows: the sums over values by which rules over whole vectors choose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire {

// What the statistics of n rows x_0, ..., x_(n-1) are. Each costs a read of one row or of two.
enum class RowStatistics : uint8_t {
  kSquareNorms,      // |x_i|^2: n
  kSquareDistances,  // |x_a - x_b|^2 of pairs (0, 1), (0, 2), ..., (n - 2, n - 1): n (n - 1) / 2
  kProducts,         // x_a x_b of pairs (0, 0), (0, 1), ..., (n - 1, n - 1): n (n + 1) / 2
  kOwn,              // others, which the rule forms itself
};

size_t count_statistics(RowStatistics kind, size_t ranks) noexcept;

// Adds those of `rows`, `ranks` rows one after another, to `sums`. Differences are rounded to fp32;
// one that overflows makes its distance infinite. REQUIRES: not kOwn.
void add_statistics_of(RowStatistics kind, std::span<const float> rows, size_t ranks,
                       std::span<double> sums) noexcept;

// One number for each pair of rows, in both orders.
class PairTable {
 public:
  PairTable(size_t ranks, double value) : ranks_(ranks), numbers_(ranks * ranks, value) {}

  size_t ranks() const noexcept { return ranks_; }
  double at(size_t a, size_t b) const noexcept { return numbers_[a * ranks_ + b]; }
  void set(size_t a, size_t b, double number) noexcept {
    numbers_[a * ranks_ + b] = numbers_[b * ranks_ + a] = number;
  }

  // Of the first rows alone.
  PairTable first(size_t ranks) const;

 private:
  size_t ranks_;
  std::vector<double> numbers_;
};

// The statistics kSquareDistances as a table, zeros between a row and itself. What is not finite,
// or negative, which no distance is, counts as infinite.
PairTable square_distances(std::span<const double> statistics, size_t ranks);

// The statistics kProducts as a table. What is not finite counts as infinite.
PairTable products(std::span<const double> statistics, size_t ranks);

// Rows whose products with each other are all finite, and those with themselves not negative: all,
// unless an owner is hostile.
std::vector<size_t> finite_rows(const PairTable& products);

}  // namespace thinwire
