// Sorts columns tile by tile: 64 columns of all rows lie in the first-level cache while a network
// of comparators runs over them.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/sort_columns.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "core/aligned.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/sort_columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace thinwire::kernel::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kTileColumns = 64;  // four vectors of AVX-512; 16 KiB at 64 rows

using DI = hn::CappedTag<int32_t, kTileColumns>;
using DF = hn::RebindToFloat<DI>;

// The bits of a float as an integer of the same order, and back: negative floats have their order
// reversed. Minima and maxima of integers treat zeros of both signs alike on every target, and
// those of floats do not.
HWY_INLINE hn::Vec<DI> Ordered(hn::Vec<DI> bits) {
  return hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(DI(), 0x7FFFFFFF)));
}

HWY_INLINE void Exchange(int32_t* HWY_RESTRICT low, int32_t* HWY_RESTRICT high) {
  const DI d;
  for (size_t i = 0; i < kTileColumns; i += hn::Lanes(d)) {
    const auto a = hn::Load(d, low + i), b = hn::Load(d, high + i);
    hn::Store(hn::Min(a, b), d, low + i);
    hn::Store(hn::Max(a, b), d, high + i);
  }
}

// Knuth's Algorithm M, for any number of rows.
void SortTile(int32_t* tile, size_t rows) {
  if (rows < 2) return;
  size_t top = 1;
  while (2 * top < rows) top *= 2;
  for (size_t p = top; p > 0; p /= 2) {
    size_t r = 0, distance = p;
    for (size_t q = top;; q /= 2) {
      for (size_t i = 0; i + distance < rows; ++i)
        if ((i & p) == r) Exchange(tile + i * kTileColumns, tile + (i + distance) * kTileColumns);
      if (q == p) break;
      distance = q - p;
      r = p;
    }
  }
}

// Columns [0, width) of rows that are `stride` apart, into rows that are `width` long.
void SortColumns(const float* rows, size_t stride, size_t count, float* sorted, size_t width,
                 int32_t* tile) {
  const DI d;
  const DF df;
  const size_t lanes = hn::Lanes(d);
  for (size_t begin = 0; begin < width; begin += kTileColumns) {
    const size_t columns = std::min(kTileColumns, width - begin);
    for (size_t row = 0; row < count; ++row) {
      const float* from = rows + row * stride + begin;
      int32_t* to = tile + row * kTileColumns;
      HWY_ALIGN float last[kTileColumns] = {};
      if (columns < kTileColumns) from = std::copy_n(from, columns, last) - columns;
      for (size_t i = 0; i < kTileColumns; i += lanes)
        hn::Store(Ordered(hn::BitCast(d, hn::LoadU(df, from + i))), d, to + i);
    }
    SortTile(tile, count);
    for (size_t row = 0; row < count; ++row) {
      const int32_t* from = tile + row * kTileColumns;
      float* to = sorted + row * width + begin;
      HWY_ALIGN float last[kTileColumns];
      float* const out = columns < kTileColumns ? last : to;
      for (size_t i = 0; i < kTileColumns; i += lanes)
        hn::StoreU(hn::BitCast(df, Ordered(hn::Load(d, from + i))), df, out + i);
      if (columns < kTileColumns) std::copy_n(last, columns, to);
    }
  }
}

}  // namespace
}  // namespace thinwire::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thinwire::kernel {
namespace {
HWY_EXPORT(SortColumns);
using HWY_NAMESPACE::kTileColumns;
}  // namespace

void sort_columns(std::span<const float> rows, size_t count, size_t begin,
                  std::span<float> sorted) {
  const size_t stride = rows.size() / count, width = sorted.size() / count;
  assert(begin + width <= stride);
  AlignedVector<int32_t> tile(count * kTileColumns);
  HWY_DYNAMIC_DISPATCH(SortColumns)
  (rows.data() + begin, stride, count, sorted.data(), width, tile.data());
}

}  // namespace thinwire::kernel
#endif  // HWY_ONCE
