// Which tensors of a stream are sent as two thin factors, and where these are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kernel/thin_products.h"
#include "thinwire/stream.h"

namespace thinwire {

// A tensor of the stream, and where it lies in the stream, in all P, in all Q and in all that
// travels as it is. Counted in values.
struct FactorPiece {
  kernel::ThinShape shape;  // rank 0: travels as it is, shape.columns values
  size_t begin = 0;
  size_t p = 0;
  size_t q = 0;
  size_t raw = 0;

  bool is_raw() const noexcept { return shape.rank == 0; }
  size_t floats() const noexcept { return is_raw() ? shape.columns : shape.left() + shape.right(); }
};

struct FactorLayout {
  std::vector<FactorPiece> pieces;  // cover the stream
  FactorPiece end;                  // totals

  size_t payload_size() const noexcept { return (end.raw + end.p + end.q) * sizeof(float); }
};

// Tensors are matrices of their first extent and all others together; those whose factors of `rank`
// would not be `min_compression` times smaller travel as they are.
FactorLayout layout_of(const StreamSpec& stream, size_t rank, double min_compression);

}  // namespace thinwire
