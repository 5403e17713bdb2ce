// Tests of orthonormal columns, and of columns that depend on others or are zero.
// SPDX-License-Identifier: Apache-2.0
#include "codec/thin_basis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"

namespace thinwire {
namespace {

using Values = std::vector<float>;

double dot(const Values& columns, size_t length, size_t a, size_t b) {
  double sum = 0;
  for (size_t i = 0; i < length; ++i)
    sum += double{columns[a * length + i]} * columns[b * length + i];
  return sum;
}

void expect_orthonormal(const Values& columns, size_t length) {
  const double square = std::pow(basis_norm(length), 2);
  for (size_t a = 0; a < columns.size() / length; ++a)
    for (size_t b = 0; b <= a; ++b)
      EXPECT_NEAR(dot(columns, length, a, b) / square, a == b, 1e-6) << a << ", " << b;
}

Values normal(size_t count, float scale = 1) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * random_normal({.seed = 7}, i);
  return values;
}

const BasisMaker::Spare kSpare = [](size_t column, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_unit({.seed = column}, i) - 0.5f;
};

TEST(ThinBasis, NormsArePowersOfTwoOfTwiceTheRootAtLeast) {
  for (size_t length = 1; length < 5000; ++length) {
    const double norm = basis_norm(length);
    EXPECT_EQ(norm, std::exp2(std::round(std::log2(norm))));
    EXPECT_GE(norm * norm, 4.0 * static_cast<double>(length));
    EXPECT_LE(norm * norm, 16.0 * static_cast<double>(length));
  }
}

TEST(ThinBasis, ColumnsBecomeOrthonormalAndSpanTheSame) {
  BasisMaker maker;
  for (const size_t length : {1, 2, 9, 100, 1003})
    for (const size_t count : {1, 2, 5})
      for (const float scale : {1.0f, 1e-30f, 1e37f}) {
        if (count > length) continue;
        const Values given = normal(count * length, scale);
        Values columns = given;
        maker.make(columns, length);
        expect_orthonormal(columns, length);
        const double square = std::pow(basis_norm(length), 2);
        for (size_t c = 0; c < count; ++c) {  // each given column is what its shares add up to
          Values both = columns;
          both.insert(both.end(), given.begin() + static_cast<ptrdiff_t>(c * length),
                      given.begin() + static_cast<ptrdiff_t>((c + 1) * length));
          double covered = 0;
          for (size_t k = 0; k < count; ++k)
            covered += std::pow(dot(both, length, k, count) / scale, 2) / square;
          const double own = dot(both, length, count, count) / scale / scale;
          EXPECT_NEAR(covered / own, 1, 1e-5);
        }
      }
}

// Nearly dependent columns are still orthogonal to 1e-6: one pass would leave some 1e-3.
TEST(ThinBasis, NearlyDependentColumnsAreOrthogonalToo) {
  const size_t length = 50;
  Values columns = normal(2 * length);
  for (size_t i = 0; i < length; ++i)
    columns[length + i] = columns[i] + 1e-4f * columns[length + i];
  BasisMaker().make(columns, length);
  expect_orthonormal(columns, length);
}

TEST(ThinBasis, ZeroAndDependentColumnsBecomeZero) {
  const size_t length = 20;
  Values columns = normal(4 * length);
  for (size_t i = 0; i < length; ++i) {
    columns[length + i] = 0;
    columns[2 * length + i] = -3 * columns[i];
  }
  BasisMaker().make(columns, length);
  for (size_t i = length; i < 3 * length; ++i) EXPECT_EQ(columns[i], 0);
  EXPECT_NEAR(dot(columns, length, 0, 3), 0, 1e-4);
  EXPECT_GT(dot(columns, length, 3, 3), 1);
}

TEST(ThinBasis, SparesStandInForThem) {
  for (const size_t length : {3, 20}) {
    Values columns(3 * length);
    for (size_t i = 0; i < length; ++i)
      columns[2 * length + i] = columns[i] = static_cast<float>(i + 1);
    BasisMaker().make(columns, length, kSpare);
    expect_orthonormal(columns, length);
  }
}

}  // namespace
}  // namespace thinwire
