// Products of a large matrix with a thin one, and the large matrix minus a product of thin ones.
// Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire::kernel {

// A is rows x columns, row-major. P is rows x rank and Q is columns x rank, both one column after
// another. Sums are in float, in an order that depends on the shape alone, nothing fused. Rows of
// times_right, columns of times_left and values of the others do not depend on each other, so they
// may be shared out among threads.
struct ThinShape {
  size_t rows = 0;
  size_t columns = 0;
  size_t rank = 0;

  constexpr size_t count() const noexcept { return rows * columns; }
  constexpr size_t left() const noexcept { return rows * rank; }      // values of P
  constexpr size_t right() const noexcept { return columns * rank; }  // values of Q
};

// p = A q: one read of A. Eight partial sums for each value.
void times_right(std::span<const float> a, std::span<const float> q, const ThinShape& shape,
                 std::span<float> p) noexcept;

// q = A^T p: one read of A. Rows are added four by four.
void times_left(std::span<const float> a, std::span<const float> p, const ThinShape& shape,
                std::span<float> q) noexcept;

// rest = A - P Q^T. `rest` may be A.
void subtract_product(std::span<const float> a, std::span<const float> p, std::span<const float> q,
                      const ThinShape& shape, std::span<float> rest) noexcept;

// out += weight x P Q^T, P Q^T rounded as subtract_product has it: columns added from the first on.
void add_product(std::span<const float> p, std::span<const float> q, const ThinShape& shape,
                 float weight, std::span<float> out) noexcept;

// out = 0 + P Q^T, as add_product with weight 1 makes of zeros, without reading `out`.
void set_product(std::span<const float> p, std::span<const float> q, const ThinShape& shape,
                 std::span<float> out) noexcept;

}  // namespace thinwire::kernel
