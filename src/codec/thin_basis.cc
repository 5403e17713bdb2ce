// Orthonormal columns, by sums in eight lanes, which compilers vectorise without changing a bit.
// SPDX-License-Identifier: Apache-2.0
#include "codec/thin_basis.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace thinwire {
namespace {

constexpr double kDependent = 1e-5;  // sums in float leave up to some 1e-6 of a dependent column
constexpr int kSpares = 3;           // the first is as good as always outside the span

template <typename X, typename Y>
double dot(std::span<const X> x, std::span<const Y> y) {
  constexpr size_t kLanes = 8;
  double lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) lane[k] += double{x[i + k]} * double{y[i + k]};
  for (size_t k = 0; i < x.size(); ++i, ++k) lane[k] += double{x[i]} * double{y[i]};
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace

float basis_norm(size_t length) noexcept {
  const int bits = length <= 1 ? 0 : static_cast<int>(std::bit_width(length - 1));
  return std::ldexp(1.0f, 1 + (bits + 1) / 2);
}

void BasisMaker::make(std::span<float> columns, size_t length, const Spare& spare) {
  if (length == 0) return;
  work_.resize(length);
  for (size_t begin = 0; begin < columns.size(); begin += length) {
    const auto before = std::span<const float>(columns).first(begin);
    const auto column = columns.subspan(begin, length);
    bool good = orthogonalise(before, column);
    for (int attempt = 0; !good && spare && attempt < kSpares; ++attempt) {
      spare(begin / length + static_cast<size_t>(attempt) * (columns.size() / length), column);
      good = orthogonalise(before, column);
    }
    if (!good) std::fill(column.begin(), column.end(), 0.0f);
  }
}

// Whether something was left of the column.
bool BasisMaker::orthogonalise(std::span<const float> before, std::span<float> column) {
  const size_t length = column.size();
  const std::span<double> work = work_;
  std::copy(column.begin(), column.end(), work.begin());  // squares of floats fit into double
  const double norm = std::sqrt(dot<double, double>(work, work));
  const double square = double{basis_norm(length)} * basis_norm(length);
  for (int pass = 0; pass < 2; ++pass)
    for (size_t begin = 0; begin < before.size(); begin += length) {
      const auto other = before.subspan(begin, length);
      const double share = dot<float, double>(other, work) / square;
      for (size_t i = 0; i < length; ++i) work[i] -= share * other[i];
    }
  const double left = std::sqrt(dot<double, double>(work, work));
  if (left <= kDependent * norm) return false;
  const double scale = basis_norm(length) / left;
  for (size_t i = 0; i < length; ++i) column[i] = static_cast<float>(work[i] * scale);
  return true;
}

}  // namespace thinwire
