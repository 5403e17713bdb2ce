// Transforms of tiles as two products with the bases of their rows and columns.
// SPDX-License-Identifier: Apache-2.0
#include "codec/dct_tiles.h"

#include <algorithm>
#include <cassert>

#include "kernel/dct.h"
#include "kernel/memory_passes.h"

namespace thinwire {

std::vector<TileMatrix> matrices_of(const StreamSpec& stream) {
  std::vector<TileMatrix> matrices;
  size_t begin = 0;
  for (const TensorSpec& tensor : stream.tensors) {
    const size_t count = tensor.count();
    TileMatrix matrix{.begin = begin, .rows = 1, .columns = count};
    begin += count;
    if (count == 0) continue;
    if (tensor.shape.size() > 1) {
      matrix.rows = tensor.shape.front();
      matrix.columns = count / matrix.rows;
    }
    matrices.push_back(matrix);
  }
  return matrices;
}

DctTiles::DctTiles(const StreamSpec& stream, size_t edge)
    : edge_(edge), matrices_(matrices_of(stream)) {
  for (const TileMatrix& matrix : matrices_)
    for (const size_t extent : {matrix.rows, matrix.columns}) {
      if (extent >= edge) need(edge);
      if (extent % edge != 0) need(extent % edge);
    }
}

void DctTiles::need(size_t length) {
  const auto [found, missing] = bases_.try_emplace(length);
  if (!missing) return;
  Basis& basis = found->second;
  basis.by_number.resize(length * length);
  basis.by_position.resize(length * length);
  kernel::dct_basis(length, basis.by_number);
  for (size_t u = 0; u < length; ++u)
    for (size_t x = 0; x < length; ++x)
      basis.by_position[x * length + u] = basis.by_number[u * length + x];
}

void DctTiles::forward(const DctTile& tile, std::span<const float> values, size_t stride,
                       std::span<float> coefficients, Scratch& scratch) const {
  const size_t rows = tile.rows, columns = tile.columns;
  scratch.half.resize(std::max(scratch.half.size(), tile.count()));
  const auto half = std::span(scratch.half).first(tile.count());
  kernel::multiply(values, {.row = stride, .inner = 1}, bases_.at(columns).by_position,
                   {.rows = rows, .inner = columns, .columns = columns}, half);
  kernel::multiply(bases_.at(rows).by_number, {.row = rows, .inner = 1}, half,
                   {.rows = rows, .inner = rows, .columns = columns}, coefficients);
}

// Rows of coefficients without a kept one would add zeros alone.
std::span<const float> DctTiles::inverse(const DctTile& tile, std::span<const uint32_t> positions,
                                         std::span<const float> kept, Scratch& scratch) const {
  assert(!positions.empty() && positions.size() == kept.size());
  const size_t rows = tile.rows, columns = tile.columns;
  const AlignedVector<float>& across = bases_.at(columns).by_number;
  const AlignedVector<float>& down = bases_.at(rows).by_number;
  scratch.half.resize(std::max(scratch.half.size(), tile.count()));
  scratch.whole.resize(std::max(scratch.whole.size(), tile.count()));
  scratch.factor.resize(std::max(scratch.factor.size(), rows * rows));
  size_t used = 0;
  for (size_t i = 0; i < positions.size();) {
    const size_t u = (positions[i] - tile.first) / columns;
    const auto row = std::span(scratch.half).subspan(used * columns, columns);
    std::fill(row.begin(), row.end(), 0.0f);
    for (; i < positions.size() && (positions[i] - tile.first) / columns == u; ++i) {
      const size_t v = (positions[i] - tile.first) % columns;
      kernel::weighted_sum(1, row, kept[i], std::span(across).subspan(v * columns, columns), row);
    }
    std::copy_n(down.begin() + static_cast<std::ptrdiff_t>(u * rows), rows,
                scratch.factor.begin() + static_cast<std::ptrdiff_t>(used * rows));
    ++used;
  }
  const auto whole = std::span(scratch.whole).first(tile.count());
  kernel::multiply(std::span(scratch.factor).first(used * rows), {.row = 1, .inner = rows},
                   std::span(scratch.half).first(used * columns),
                   {.rows = rows, .inner = used, .columns = columns}, whole);
  return whole;
}

}  // namespace thinwire
