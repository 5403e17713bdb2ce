// Products by blocks of four rows and two vectors, whose sums stay in registers. A lane is one
// column, so that the order of its additions does not depend on the length of vectors.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/dct.h"

#include <cassert>
#include <cmath>
#include <cstdint>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/dct.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kRows = 4;
constexpr size_t kVectors = 2;

// Rows [0, kR) and kV vectors of columns.
template <size_t kR, size_t kV>
HWY_INLINE void Block(const float* left, FactorSteps steps, const float* right,
                      const ProductShape& shape, float* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[kR][kV];
  for (size_t r = 0; r < kR; ++r)
    for (size_t v = 0; v < kV; ++v) sums[r][v] = hn::Zero(d);
  for (size_t k = 0; k < shape.inner; ++k) {
    const float* row = right + k * shape.columns;
    hn::Vec<decltype(d)> values[kV];
    for (size_t v = 0; v < kV; ++v) values[v] = hn::LoadU(d, row + v * lanes);
    for (size_t r = 0; r < kR; ++r) {
      const auto factor = hn::Set(d, left[r * steps.row + k * steps.inner]);
      for (size_t v = 0; v < kV; ++v) sums[r][v] = hn::Add(sums[r][v], hn::Mul(factor, values[v]));
    }
  }
  for (size_t r = 0; r < kR; ++r)
    for (size_t v = 0; v < kV; ++v) hn::StoreU(sums[r][v], d, out + r * shape.columns + v * lanes);
}

template <size_t kR>
HWY_INLINE void Rows(const float* left, FactorSteps steps, const float* right,
                     const ProductShape& shape, float* out) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  size_t j = 0;
  for (; j + kVectors * lanes <= shape.columns; j += kVectors * lanes)
    Block<kR, kVectors>(left, steps, right + j, shape, out + j);
  for (; j + lanes <= shape.columns; j += lanes)
    Block<kR, 1>(left, steps, right + j, shape, out + j);
  for (; j < shape.columns; ++j)
    for (size_t r = 0; r < kR; ++r) {
      float sum = 0;
      for (size_t k = 0; k < shape.inner; ++k)
        sum += left[r * steps.row + k * steps.inner] * right[k * shape.columns + j];
      out[r * shape.columns + j] = sum;
    }
}

void Multiply(const float* left, FactorSteps steps, const float* right, const ProductShape& shape,
              float* out) {
  size_t i = 0;
  for (; i + kRows <= shape.rows; i += kRows)
    Rows<kRows>(left + i * steps.row, steps, right, shape, out + i * shape.columns);
  for (; i < shape.rows; ++i)
    Rows<1>(left + i * steps.row, steps, right, shape, out + i * shape.columns);
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {

HWY_EXPORT(Multiply);

// The sums 1 - x^2 / 2! + ... and x - x^3 / 3! + ..., up to pi / 4 to the last bit of a double or
// so.
double series(double x, bool sine) {
  const double square = x * x;
  double sum = 1;
  for (int i = 20; i > 0; i -= 2) sum = 1 - square / ((i + sine) * (i + sine - 1)) * sum;
  return sine ? x * sum : sum;
}

// cos(pi m / (2 n)), for m < 4 n.
double cosine(uint64_t m, uint64_t n) {
  if (m > 2 * n) m = 4 * n - m;
  const bool negative = m > n;
  if (negative) m = 2 * n - m;
  const bool sine = 2 * m > n;  // of the angle that is missing to a right one
  const double angle =
      std::numbers::pi * static_cast<double>(sine ? n - m : m) / static_cast<double>(2 * n);
  return negative ? -series(angle, sine) : series(angle, sine);
}

}  // namespace

void dct_basis(size_t n, std::span<float> basis) noexcept {
  assert(basis.size() == n * n);
  for (size_t u = 0; u < n; ++u) {
    const double scale = std::sqrt((u == 0 ? 1.0 : 2.0) / static_cast<double>(n));
    for (size_t x = 0; x < n; ++x)
      basis[u * n + x] = static_cast<float>(scale * cosine((2 * x + 1) * u % (4 * n), n));
  }
}

void multiply(std::span<const float> left, FactorSteps steps, std::span<const float> right,
              const ProductShape& shape, std::span<float> out) noexcept {
  assert(right.size() == shape.inner * shape.columns && out.size() == shape.rows * shape.columns);
  assert(shape.rows == 0 || shape.inner == 0 ||
         left.size() > (shape.rows - 1) * steps.row + (shape.inner - 1) * steps.inner);
  HWY_DYNAMIC_DISPATCH(Multiply)(left.data(), steps, right.data(), shape, out.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
