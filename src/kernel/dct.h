// What a discrete cosine transform is made of: its basis, and products of small matrices.
// Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire::kernel {

// The orthonormal DCT-II of n values: basis[u * n + x] is the float nearest to s cos(pi (2 x + 1) u
// / (2 n)), where s is sqrt(1 / n) for u = 0 and sqrt(2 / n) for all others. No library's cosine is
// asked, as those differ. REQUIRES: n * n values.
void dct_basis(size_t n, std::span<float> basis) noexcept;

struct ProductShape {
  size_t rows = 0;
  size_t inner = 0;
  size_t columns = 0;
};

// Where value (i, k) of a left factor lies: at i * row + k * inner.
struct FactorSteps {
  size_t row = 0;
  size_t inner = 0;
};

// out[i * columns + j] = 0 + left(i, 0) right[0][j] + left(i, 1) right[1][j] + ..., added from the
// left in float, nothing fused. `right` is inner x columns, row-major. REQUIRES: `out` is neither
// of the factors.
void multiply(std::span<const float> left, FactorSteps steps, std::span<const float> right,
              const ProductShape& shape, std::span<float> out) noexcept;

}  // namespace thinwire::kernel
