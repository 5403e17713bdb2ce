// The cosine basis against the formula in long double, and products against loops, on every target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/dct.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "core/random.h"
#include "kernel/for_each_target.h"

namespace thinwire::kernel {
namespace {

using Values = std::vector<float>;

Values normal(size_t count, uint64_t seed) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_normal({.seed = seed}, i);
  return values;
}

Values basis_of(size_t n) {
  Values basis(n * n);
  dct_basis(n, basis);
  return basis;
}

TEST(DctBasis, IsTheNearestFloatToTheFormula) {
  for (const size_t n : {1u, 2u, 3u, 5u, 8u, 31u, 64u, 100u, 127u, 256u}) {
    const Values basis = basis_of(n);
    const auto length = static_cast<long double>(n);
    for (size_t u = 0; u < n; ++u)
      for (size_t x = 0; x < n; ++x) {
        const auto m = static_cast<long double>((2 * x + 1) * u % (4 * n));
        const long double scale = std::sqrt((u == 0 ? 1.0L : 2.0L) / length);
        const long double exact =
            scale * std::cos(std::numbers::pi_v<long double> * m / (2 * length));
        // A cosine of a right angle is not zero in long double.
        const float expected = std::abs(exact) < 1e-17L ? 0.0f : static_cast<float>(exact);
        ASSERT_EQ(basis[u * n + x], expected) << n << ": " << u << ", " << x;
      }
  }
}

TEST(DctBasis, IsOrthonormal) {
  for (const size_t n : {1u, 2u, 7u, 64u, 256u}) {
    const Values basis = basis_of(n);
    for (size_t u = 0; u < n; ++u)
      for (size_t v = 0; v <= u; ++v) {
        double product = 0;
        for (size_t x = 0; x < n; ++x) product += double{basis[u * n + x]} * basis[v * n + x];
        ASSERT_NEAR(product, u == v, 2e-7) << n << ": " << u << ", " << v;
      }
  }
}

// To the bit: the loop adds in the documented order, one product after another.
TEST(Multiply, IsTheSumFromTheLeftOnEveryTarget) {
  const ProductShape shapes[] = {{1, 1, 1}, {2, 3, 1},    {4, 8, 8},    {5, 7, 9},   {64, 64, 64},
                                 {3, 0, 5}, {1, 64, 40},  {40, 5, 129}, {13, 17, 7}, {64, 3, 64},
                                 {0, 4, 8}, {7, 129, 63}, {9, 31, 33}};
  for (const ProductShape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.inner) + " x " +
                 std::to_string(shape.columns));
    const Values right = normal(shape.inner * shape.columns, 2);
    // Row-major with a gap, and column-major.
    for (const FactorSteps steps : {FactorSteps{shape.inner + 3, 1}, FactorSteps{1, shape.rows}}) {
      const Values left = normal(shape.rows * (shape.inner + 3), 1);
      Values expected(shape.rows * shape.columns);
      for (size_t i = 0; i < shape.rows; ++i)
        for (size_t j = 0; j < shape.columns; ++j) {
          volatile float sum = 0;  // nothing is fused
          for (size_t k = 0; k < shape.inner; ++k) {
            volatile const float product =
                left[i * steps.row + k * steps.inner] * right[k * shape.columns + j];
            sum = sum + product;
          }
          expected[i * shape.columns + j] = sum;
        }
      for_each_target([&](std::string_view target) {
        Values out(expected.size(), NAN);
        multiply(left, steps, right, shape, out);
        EXPECT_EQ(out, expected) << target;
      });
    }
  }
}

}  // namespace
}  // namespace thinwire::kernel
