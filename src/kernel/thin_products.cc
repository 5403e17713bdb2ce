// Products by tiles of a few rows and up to four columns of the thin factor. So sums stay in
// registers and each value of the large matrix is read once.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/thin_products.h"

#include <algorithm>
#include <cassert>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/thin_products.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Column j of A always meets partial sum j % kLanes: one vector of AVX2, two of SSE.
constexpr size_t kLanes = 8;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;
constexpr size_t kStep = hn::MaxLanes(D());
constexpr size_t kVectors = kLanes / kStep;

constexpr size_t kGroup = 4;  // columns of the thin factor at a time
constexpr size_t kRows = 4;   // rows that times_left adds together
constexpr size_t kTile =
    1024;  // columns: four rows of them stay in the first cache for the next of P

HWY_INLINE float Fold(const V* sums) {
  HWY_ALIGN float lane[kLanes];
  for (size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], D(), lane + v * kStep);
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// Rows [0, kR) of `a` times columns [0, kC) of q: p[c * rows + r].
template <size_t kR, size_t kC>
HWY_INLINE void RightTile(const float* a, const float* q, size_t columns, size_t rows, float* p) {
  const D d;
  V sums[kR][kC][kVectors];
  for (size_t r = 0; r < kR; ++r)
    for (size_t c = 0; c < kC; ++c)
      for (size_t v = 0; v < kVectors; ++v) sums[r][c][v] = hn::Zero(d);
  size_t j = 0;
  for (; j + kLanes <= columns; j += kLanes)
    for (size_t v = 0; v < kVectors; ++v) {
      V row[kR];
      for (size_t r = 0; r < kR; ++r) row[r] = hn::LoadU(d, a + r * columns + j + v * kStep);
      for (size_t c = 0; c < kC; ++c) {
        const V factor = hn::LoadU(d, q + c * columns + j + v * kStep);
        for (size_t r = 0; r < kR; ++r)
          sums[r][c][v] = hn::Add(sums[r][c][v], hn::Mul(row[r], factor));
      }
    }
  for (size_t r = 0; r < kR; ++r)
    for (size_t c = 0; c < kC; ++c) {
      float sum = Fold(sums[r][c]);
      for (size_t k = j; k < columns; ++k) sum += a[r * columns + k] * q[c * columns + k];
      p[c * rows + r] = sum;
    }
}

// Two rows where four columns keep eight sums going, more where there are fewer.
template <size_t kC>
void RightColumns(const float* a, const float* q, size_t columns, size_t rows, size_t total_rows,
                  float* p) {
  constexpr size_t kR = kC <= 2 ? 4 : 2;
  size_t i = 0;
  for (; i + kR <= rows; i += kR) RightTile<kR, kC>(a + i * columns, q, columns, total_rows, p + i);
  for (; i < rows; ++i) RightTile<1, kC>(a + i * columns, q, columns, total_rows, p + i);
}

// Rows are taken by the stripe, so that they are in cache for the second four columns.
void TimesRight(const float* a, const float* q, const ThinShape& shape, float* p) {
  const auto [rows, columns, rank] = shape;
  const size_t stripe = std::max<size_t>(4, 4096 / std::max<size_t>(columns, 1) / 4 * 4);
  for (size_t i = 0; i < rows; i += stripe) {
    const size_t count = std::min(stripe, rows - i);
    const float* from = a + i * columns;
    for (size_t c = 0; c < rank; c += kGroup) {
      const float* factor = q + c * columns;
      float* to = p + c * rows + i;
      switch (std::min(kGroup, rank - c)) {
        case 1:
          RightColumns<1>(from, factor, columns, count, rows, to);
          break;
        case 2:
          RightColumns<2>(from, factor, columns, count, rows, to);
          break;
        case 3:
          RightColumns<3>(from, factor, columns, count, rows, to);
          break;
        default:
          RightColumns<4>(from, factor, columns, count, rows, to);
      }
    }
  }
}

// q[c][j] += the sum over kR rows of a[r][j] p[c][r], for columns [0, width).
template <size_t kR>
HWY_INLINE void LeftTile(const float* a, const float* p, const ThinShape& shape, size_t width,
                         float* q) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto added = [](auto x0, auto x1, auto x2, auto x3)
                         HWY_ATTR { return hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)); };
  for (size_t c = 0; c < shape.rank; ++c) {
    const float* factor = p + c * shape.rows;
    float* to = q + c * shape.columns;
    const auto p0 = hn::Set(d, factor[0]);
    const auto p1 = hn::Set(d, kR > 1 ? factor[1 % kR] : 0);
    const auto p2 = hn::Set(d, kR > 2 ? factor[2 % kR] : 0);
    const auto p3 = hn::Set(d, kR > 3 ? factor[3 % kR] : 0);
    size_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const auto x0 = hn::Mul(hn::LoadU(d, a + j), p0);
      if (kR == kRows) {
        const auto x1 = hn::Mul(hn::LoadU(d, a + shape.columns + j), p1);
        const auto x2 = hn::Mul(hn::LoadU(d, a + 2 * shape.columns + j), p2);
        const auto x3 = hn::Mul(hn::LoadU(d, a + 3 * shape.columns + j), p3);
        hn::StoreU(hn::Add(hn::LoadU(d, to + j), added(x0, x1, x2, x3)), d, to + j);
      } else {
        hn::StoreU(hn::Add(hn::LoadU(d, to + j), x0), d, to + j);
      }
    }
    for (; j < width; ++j) {
      if (kR == kRows)
        to[j] +=
            (a[j] * factor[0] + a[shape.columns + j] * factor[1 % kR]) +
            (a[2 * shape.columns + j] * factor[2 % kR] + a[3 * shape.columns + j] * factor[3 % kR]);
      else
        to[j] += a[j] * factor[0];
    }
  }
}

void TimesLeft(const float* a, const float* p, const ThinShape& shape, float* q) {
  std::fill_n(q, shape.right(), 0.0f);
  for (size_t j = 0; j < shape.columns; j += kTile) {
    const size_t width = std::min(kTile, shape.columns - j);
    size_t i = 0;
    for (; i + kRows <= shape.rows; i += kRows)
      LeftTile<kRows>(a + i * shape.columns + j, p + i, shape, width, q + j);
    for (; i < shape.rows; ++i) LeftTile<1>(a + i * shape.columns + j, p + i, shape, width, q + j);
  }
}

// Calls use(j, row of P Q^T from j on) for vectors, and rest(j, value) for what does not fill one.
template <class Use, class Rest>
HWY_INLINE void ProductRow(const float* p, const float* q, const ThinShape& shape, const Use& use,
                           const Rest& rest) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + lanes <= shape.columns; j += lanes) {
    auto sum = hn::Mul(hn::Set(d, p[0]), hn::LoadU(d, q + j));
    for (size_t c = 1; c < shape.rank; ++c)
      sum = hn::Add(
          sum, hn::Mul(hn::Set(d, p[c * shape.rows]), hn::LoadU(d, q + c * shape.columns + j)));
    use(j, sum);
  }
  for (; j < shape.columns; ++j) {
    float sum = p[0] * q[j];
    for (size_t c = 1; c < shape.rank; ++c) sum += p[c * shape.rows] * q[c * shape.columns + j];
    rest(j, sum);
  }
}

void SubtractProduct(const float* a, const float* p, const float* q, const ThinShape& shape,
                     float* rest) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < shape.rows; ++i, a += shape.columns, rest += shape.columns)
    ProductRow(
        p + i, q, shape,
        [=](size_t j, auto sum)
            HWY_ATTR { hn::StoreU(hn::Sub(hn::LoadU(d, a + j), sum), d, rest + j); },
        [=](size_t j, float sum) { rest[j] = a[j] - sum; });
}

void AddProduct(const float* p, const float* q, const ThinShape& shape, float weight, float* out) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, weight);
  for (size_t i = 0; i < shape.rows; ++i, out += shape.columns)
    ProductRow(
        p + i, q, shape,
        [=](size_t j, auto sum) HWY_ATTR {
          hn::StoreU(hn::Add(hn::LoadU(d, out + j), hn::Mul(factor, sum)), d, out + j);
        },
        [=](size_t j, float sum) { out[j] += weight * sum; });
}

void SetProduct(const float* p, const float* q, const ThinShape& shape, float* out) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d);  // makes a negative zero positive
  for (size_t i = 0; i < shape.rows; ++i, out += shape.columns)
    ProductRow(
        p + i, q, shape,
        [=](size_t j, auto sum) HWY_ATTR { hn::StoreU(hn::Add(zero, sum), d, out + j); },
        [=](size_t j, float sum) { out[j] = 0.0f + sum; });
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(TimesRight);
HWY_EXPORT(TimesLeft);
HWY_EXPORT(SubtractProduct);
HWY_EXPORT(AddProduct);
HWY_EXPORT(SetProduct);
}  // namespace

void times_right(std::span<const float> a, std::span<const float> q, const ThinShape& shape,
                 std::span<float> p) noexcept {
  assert(a.size() == shape.count() && q.size() == shape.right() && p.size() == shape.left());
  HWY_DYNAMIC_DISPATCH(TimesRight)(a.data(), q.data(), shape, p.data());
}

void times_left(std::span<const float> a, std::span<const float> p, const ThinShape& shape,
                std::span<float> q) noexcept {
  assert(a.size() == shape.count() && p.size() == shape.left() && q.size() == shape.right());
  HWY_DYNAMIC_DISPATCH(TimesLeft)(a.data(), p.data(), shape, q.data());
}

void subtract_product(std::span<const float> a, std::span<const float> p, std::span<const float> q,
                      const ThinShape& shape, std::span<float> rest) noexcept {
  assert(a.size() == shape.count() && rest.size() == shape.count() && shape.rank > 0);
  assert(p.size() == shape.left() && q.size() == shape.right());
  HWY_DYNAMIC_DISPATCH(SubtractProduct)(a.data(), p.data(), q.data(), shape, rest.data());
}

void add_product(std::span<const float> p, std::span<const float> q, const ThinShape& shape,
                 float weight, std::span<float> out) noexcept {
  assert(p.size() == shape.left() && q.size() == shape.right());
  assert(out.size() == shape.count() && shape.rank > 0);
  HWY_DYNAMIC_DISPATCH(AddProduct)(p.data(), q.data(), shape, weight, out.data());
}

void set_product(std::span<const float> p, std::span<const float> q, const ThinShape& shape,
                 std::span<float> out) noexcept {
  assert(p.size() == shape.left() && q.size() == shape.right());
  assert(out.size() == shape.count() && shape.rank > 0);
  HWY_DYNAMIC_DISPATCH(SetProduct)(p.data(), q.data(), shape, out.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
