// Covariances of rows by their products; eigenvalues of small matrices.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/covariance.h"

#include <algorithm>
#include <cmath>

namespace thinwire {
namespace {

// Turns rows and columns p and q such that matrix(p, q) becomes 0 [Golub and Van Loan, 8.5.2], and
// the columns of `vectors` with them.
void rotate(SquareMatrix& matrix, SquareMatrix& vectors, size_t p, size_t q) {
  const double theta = (matrix.at(q, q) - matrix.at(p, p)) / (2 * matrix.at(p, q));
  const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(1 + theta * theta));
  const double cosine = 1 / std::sqrt(1 + t * t), sine = t * cosine;
  const auto turn = [&](double& a, double& b) {
    const double before = a;
    a = cosine * before - sine * b;
    b = sine * before + cosine * b;
  };
  for (size_t k = 0; k < matrix.n; ++k) turn(matrix.at(k, p), matrix.at(k, q));
  for (size_t k = 0; k < matrix.n; ++k) turn(matrix.at(p, k), matrix.at(q, k));
  for (size_t k = 0; k < matrix.n; ++k) turn(vectors.at(k, p), vectors.at(k, q));
  matrix.at(p, q) = matrix.at(q, p) = 0;  // without what rounding leaves
}

}  // namespace

SquareMatrix covariance_of(const PairTable& products, std::span<const size_t> rows,
                           std::span<const double> counts) {
  const size_t n = rows.size();
  SquareMatrix matrix{.n = n, .numbers = std::vector<double>(n * n)};
  double sum = 0, of_mean = 0;  // C, mu mu
  for (const double count : counts) sum += count;
  std::vector<double> with_mean(n, 0.0);  // r_i mu
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) with_mean[i] += counts[j] / sum * products.at(rows[i], rows[j]);
    of_mean += counts[i] / sum * with_mean[i];
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j)
      matrix.at(i, j) = matrix.at(j, i) =
          std::sqrt(counts[i] * counts[j]) / sum *
          (products.at(rows[i], rows[j]) - with_mean[i] - with_mean[j] + of_mean);
  return matrix;
}

Eigenpair largest_eigenpair(SquareMatrix matrix) {
  constexpr int kMostSweeps = 60;  // a handful is usual
  constexpr double kStill = 1e-16;
  const size_t n = matrix.n;
  SquareMatrix vectors{.n = n, .numbers = std::vector<double>(n * n, 0.0)};
  double largest = 0;
  for (size_t i = 0; i < n; ++i) vectors.at(i, i) = 1;
  for (const double x : matrix.numbers) largest = std::max(largest, std::abs(x));
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool moved = false;
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q)
        if (std::abs(matrix.at(p, q)) > kStill * largest) {
          rotate(matrix, vectors, p, q);
          moved = true;
        }
    if (!moved) break;
  }
  size_t best = 0;
  for (size_t i = 1; i < n; ++i)
    if (matrix.at(i, i) > matrix.at(best, best)) best = i;
  Eigenpair pair{.value = matrix.at(best, best), .vector = {}};
  for (size_t i = 0; i < n; ++i) pair.vector.push_back(vectors.at(i, best));
  return pair;
}

bool is_below(const SquareMatrix& matrix, double bound) {
  SquareMatrix root = matrix;  // bound I - matrix = root root^T, below the diagonal
  for (size_t i = 0; i < root.n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double rest = (i == j ? bound : 0) - matrix.at(i, j);
      for (size_t k = 0; k < j; ++k) rest -= root.at(i, k) * root.at(j, k);
      if (i == j && !(rest > 0)) return false;
      root.at(i, j) = i == j ? std::sqrt(rest) : rest / root.at(j, j);
    }
  return true;
}

}  // namespace thinwire
