// Products with thin matrices against loops in double, on every target.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/thin_products.h"

#include <gtest/gtest.h>

#include <cmath>
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

const std::vector<ThinShape>& shapes() {
  static const std::vector<ThinShape> all = {
      {1, 1, 1},   {2, 3, 1},    {5, 7, 2},    {3, 8, 3},     {8, 9, 4},    {13, 17, 5},
      {30, 31, 9}, {4, 1030, 1}, {7, 2100, 4}, {1000, 5, 3},  {129, 64, 7}, {1, 40, 1},
      {40, 1, 1},  {6, 1024, 2}, {9, 1031, 3}, {66, 5000, 1}, {70, 33, 16}};
  return all;
}

template <typename Body>
void for_shapes(const Body& body) {
  for (const ThinShape& shape : shapes()) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + ", rank " +
                 std::to_string(shape.rank));
    body(shape, normal(shape.count(), 1), normal(shape.left(), 2), normal(shape.right(), 3));
  }
}

// Every value is within rounding of the sum in double, whose terms have these magnitudes.
void expect_sum(float got, double sum, double magnitudes, size_t terms) {
  EXPECT_NEAR(got, sum, 6e-8 * magnitudes * (1 + std::sqrt(static_cast<double>(terms))));
}

TEST(ThinProducts, TimesRightIsTheSumOverColumns) {
  for_shapes([](const ThinShape& shape, const Values& a, const Values&, const Values& q) {
    Values first;
    for_each_target([&](std::string_view target) {
      Values p(shape.left(), NAN);
      times_right(a, q, shape, p);
      if (first.empty()) first = p;
      EXPECT_EQ(p, first) << target;
    });
    for (size_t c = 0; c < shape.rank; ++c)
      for (size_t i = 0; i < shape.rows; ++i) {
        double sum = 0, magnitudes = 0;
        for (size_t j = 0; j < shape.columns; ++j) {
          const double term = double{a[i * shape.columns + j]} * q[c * shape.columns + j];
          sum += term;
          magnitudes += std::abs(term);
        }
        expect_sum(first[c * shape.rows + i], sum, magnitudes, shape.columns);
      }
  });
}

TEST(ThinProducts, TimesLeftIsTheSumOverRows) {
  for_shapes([](const ThinShape& shape, const Values& a, const Values& p, const Values&) {
    Values first;
    for_each_target([&](std::string_view target) {
      Values q(shape.right(), NAN);
      times_left(a, p, shape, q);
      if (first.empty()) first = q;
      EXPECT_EQ(q, first) << target;
    });
    for (size_t c = 0; c < shape.rank; ++c)
      for (size_t j = 0; j < shape.columns; ++j) {
        double sum = 0, magnitudes = 0;
        for (size_t i = 0; i < shape.rows; ++i) {
          const double term = double{a[i * shape.columns + j]} * p[c * shape.rows + i];
          sum += term;
          magnitudes += std::abs(term);
        }
        expect_sum(first[c * shape.columns + j], sum, magnitudes, shape.rows);
      }
  });
}

// Each column alone gives the bits that it has among others, and so does each row of times_right.
TEST(ThinProducts, BitsDoNotDependOnWhatIsTakenTogether) {
  for_shapes([](const ThinShape& shape, const Values& a, const Values& p, const Values& q) {
    Values right(shape.left()), left(shape.right());
    times_right(a, q, shape, right);
    times_left(a, p, shape, left);
    const ThinShape one{.rows = shape.rows, .columns = shape.columns, .rank = 1};
    for (size_t c = 0; c < shape.rank; ++c) {
      Values column(shape.rows), row(shape.columns);
      times_right(a, std::span(q).subspan(c * shape.columns, shape.columns), one, column);
      times_left(a, std::span(p).subspan(c * shape.rows, shape.rows), one, row);
      for (size_t i = 0; i < shape.rows; ++i) EXPECT_EQ(column[i], right[c * shape.rows + i]);
      for (size_t j = 0; j < shape.columns; ++j) EXPECT_EQ(row[j], left[c * shape.columns + j]);
    }
    const ThinShape last{.rows = 1, .columns = shape.columns, .rank = shape.rank};
    Values of_last(shape.rank);
    times_right(std::span(a).subspan(shape.count() - shape.columns), q, last, of_last);
    for (size_t c = 0; c < shape.rank; ++c) EXPECT_EQ(of_last[c], right[(c + 1) * shape.rows - 1]);
  });
}

TEST(ThinProducts, AZeroIsSetAsAddingItToZeroLeavesIt) {
  const Values p = {0.0f}, q(40, -1.0f);
  for_each_target([&](std::string_view target) {
    Values whole(40, NAN);
    set_product(p, q, {1, 40, 1}, whole);
    for (const float value : whole) ASSERT_FALSE(std::signbit(value)) << target;
  });
}

TEST(ThinProducts, WhatIsSubtractedIsWhatIsAddedOrSet) {
  for_shapes([](const ThinShape& shape, const Values& a, const Values& p, const Values& q) {
    Values product(shape.count());
    for (size_t i = 0; i < shape.rows; ++i)
      for (size_t j = 0; j < shape.columns; ++j) {
        float sum = p[i] * q[j];
        for (size_t c = 1; c < shape.rank; ++c)
          sum += p[c * shape.rows + i] * q[c * shape.columns + j];
        product[i * shape.columns + j] = sum;
      }
    for_each_target([&](std::string_view target) {
      Values rest(shape.count()), in_place = a, sum = a, whole(shape.count(), NAN);
      subtract_product(a, p, q, shape, rest);
      subtract_product(in_place, p, q, shape, in_place);
      add_product(p, q, shape, 0.25f, sum);
      set_product(p, q, shape, whole);
      EXPECT_EQ(in_place, rest) << target;
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(rest[i], a[i] - product[i]) << target << ": " << i;
        ASSERT_EQ(sum[i], a[i] + 0.25f * product[i]) << target << ": " << i;
        ASSERT_EQ(whole[i], product[i]) << target << ": " << i;
      }
    });
  });
}

}  // namespace
}  // namespace thinwire::kernel
