// The covariance of a few long rows, by the products of pairs of them: its largest eigenvalue and
// the direction that belongs to it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exchange/rules/row_statistics.h"

namespace thinwire {

// A symmetric matrix, row after row.
struct SquareMatrix {
  size_t n = 0;
  std::vector<double> numbers;

  double& at(size_t a, size_t b) noexcept { return numbers[a * n + b]; }
  double at(size_t a, size_t b) const noexcept { return numbers[a * n + b]; }
};

// Of the rows r_0, r_1, ... that are named, in which r_i counts c_i > 0:
//
//   K_ij = sqrt(c_i c_j) (r_i - mu)(r_j - mu) / C,   C = sum of c_i,   mu = sum of c_i r_i / C
//
// It has the same eigenvalues above 0 as their covariance, sum of c_i (r_i - mu)(r_i - mu)^T / C,
// which is as large as rows are long. With an eigenvector u of K of eigenvalue l, (r_i - mu) v is
// sqrt(C l / c_i) u_i for the eigenvector v of the covariance, both of norm 1.
SquareMatrix covariance_of(const PairTable& products, std::span<const size_t> rows,
                           std::span<const double> counts);

struct Eigenpair {
  double value = 0;
  std::vector<double> vector;  // of norm 1
};

// The largest eigenvalue and a vector of it, by Jacobi's rotations in a fixed order: the same bits
// on all machines. If several are equal, the vector is one of many. REQUIRES: finite; n > 0.
Eigenpair largest_eigenpair(SquareMatrix matrix);

// Whether all eigenvalues are below `bound`, up to rounding: a Cholesky decomposition of n^3 / 6
// products at most, which ends as soon as one is not.
bool is_below(const SquareMatrix& matrix, double bound);

}  // namespace thinwire
