// DctTiles: cuts the tensors of a stream into tiles and transforms them, there and back.
//
// A tensor is a matrix of its first extent and all others together; one of fewer than two
// dimensions is a single row. Tiles have `edge` rows and columns, those at the ends fewer. Tile
// after tile, row-major in the matrix, and inside a tile row-major again: this is the order of
// coefficients.
//
//   C[u][v] = sum over y of R[u][y] (sum over x of X[y][x] K[v][x])
//   X[y][x] = sum over u of R[u][y] (sum over v of C[u][v] K[v][x])
//   R, K: the DCT-II bases of a tile's rows and columns
//
// All sums are in float from the first term up, so that every machine has the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "thinwire/stream.h"

namespace thinwire {

struct DctTile {
  size_t begin = 0;   // of its first value in the stream
  size_t stride = 0;  // from row to row
  size_t rows = 0;
  size_t columns = 0;
  size_t first = 0;  // of its coefficients

  size_t count() const noexcept { return rows * columns; }
};

// A tensor of the stream as a matrix.
struct TileMatrix {
  size_t begin = 0, rows = 0, columns = 0;
};
std::vector<TileMatrix> matrices_of(const StreamSpec& stream);

// Calls body(tile) for all tiles of the matrices, in order. REQUIRES: 1 <= edge.
template <typename Body>
void each_tile(const std::vector<TileMatrix>& matrices, size_t edge, const Body& body) {
  size_t first = 0;
  for (const TileMatrix& matrix : matrices)
    for (size_t row = 0; row < matrix.rows; row += edge)
      for (size_t column = 0; column < matrix.columns; column += edge) {
        const DctTile tile{.begin = matrix.begin + row * matrix.columns + column,
                           .stride = matrix.columns,
                           .rows = std::min(edge, matrix.rows - row),
                           .columns = std::min(edge, matrix.columns - column),
                           .first = first};
        body(tile);
        first += tile.count();
      }
}

class DctTiles {
 public:
  // Kept by one thread.
  struct Scratch {
    AlignedVector<float> half, whole, factor;
  };

  DctTiles(const StreamSpec& stream, size_t edge);

  template <typename Body>
  void each(const Body& body) const {
    each_tile(matrices_, edge_, body);
  }

  // Writes the coefficients of a tile whose values are the first of `values` and so on, in rows
  // that are `stride` apart. REQUIRES: no sum overflows.
  void forward(const DctTile& tile, std::span<const float> values, size_t stride,
               std::span<float> coefficients, Scratch& scratch) const;

  // Returns the values of a tile, row-major, whose coefficients are `kept` at `positions`, and 0
  // elsewhere. Positions ascend; tile.first is that of the tile's first coefficient. Good until the
  // next call. REQUIRES: some are kept.
  std::span<const float> inverse(const DctTile& tile, std::span<const uint32_t> positions,
                                 std::span<const float> kept, Scratch& scratch) const;

 private:
  // A basis, and the same with the position as its first index.
  struct Basis {
    AlignedVector<float> by_number, by_position;
  };

  void need(size_t length);

  const size_t edge_;
  const std::vector<TileMatrix> matrices_;
  std::map<size_t, Basis> bases_;  // by length
};

}  // namespace thinwire
