// Computes the shapes and offsets of a stream's factors, one tensor after another.
// SPDX-License-Identifier: Apache-2.0
#include "codec/factor_layout.h"

#include <algorithm>

namespace thinwire {
namespace {

kernel::ThinShape shape_of(const TensorSpec& tensor, size_t rank, double min_compression) {
  const size_t count = tensor.count();
  const kernel::ThinShape raw{.rows = 1, .columns = count, .rank = 0};
  if (tensor.shape.size() < 2 || count == 0) return raw;
  kernel::ThinShape shape{.rows = tensor.shape.front(), .columns = count / tensor.shape.front()};
  shape.rank = std::min({rank, shape.rows, shape.columns});
  const auto thin = static_cast<double>(shape.left() + shape.right());
  return thin * min_compression < static_cast<double>(count) ? shape : raw;
}

}  // namespace

FactorLayout layout_of(const StreamSpec& stream, size_t rank, double min_compression) {
  FactorLayout layout;
  for (const TensorSpec& tensor : stream.tensors) {
    layout.end.shape = shape_of(tensor, rank, min_compression);
    layout.pieces.push_back(layout.end);
    const FactorPiece piece = layout.end;
    layout.end.begin += tensor.count();
    layout.end.p += piece.shape.left();
    layout.end.q += piece.shape.right();
    if (piece.is_raw()) layout.end.raw += piece.shape.columns;
  }
  return layout;
}

}  // namespace thinwire
