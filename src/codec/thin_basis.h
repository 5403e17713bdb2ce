// BasisMaker: makes columns orthonormal, also dependent and zero ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace thinwire {

// The power of two, at least 2 sqrt(length), that is the norm of the columns below. With A of
// `length` columns and q such a column, no partial sum of A q / norm^2 exceeds half the largest |A|
// (Cauchy and Schwarz), so no product with factors overflows.
float basis_norm(size_t length) noexcept;

// Gram-Schmidt in double, each column twice, in a fixed order of additions.
class BasisMaker {
 public:
  // Writes the values of a column that may stand in for one that is lost.
  using Spare = std::function<void(size_t column, std::span<float> values)>;

  // Makes `columns` (count of them, one after another, each of `length` values) orthogonal, of norm
  // basis_norm(length). A column that lies in the span of those before it, to within 1e-5 of its
  // norm, or that is zero, is replaced by the part of a spare one outside that span; without
  // `spare` it becomes zero. REQUIRES: finite values; count <= length where spares are wanted.
  void make(std::span<float> columns, size_t length, const Spare& spare = {});

 private:
  bool orthogonalise(std::span<const float> before, std::span<float> column);

  std::vector<double> work_;
};

}  // namespace thinwire
