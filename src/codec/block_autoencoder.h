// BlockAutoencoder: a linear autoencoder of blocks of values, trained step by step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/thin_basis.h"
#include "core/aligned.h"

namespace thinwire {

// V has `code` orthonormal columns of `block` values. The code of a block x is V^T x, and V V^T x
// is decoded: one matrix for both directions. Being linear, the mean of several codes decodes to
// the mean of what they decode to one by one; being a projection, it leaves no more than there was.
//
// Training is stochastic gradient ascent with orthonormal columns [Oja and Karhunen, 1985], which
// minimises the squared error of such an autoencoder: V <- orthonormal(V + X^T X V / |X|^2) for
// blocks X, the rows. The first V are the Legendre polynomials of degree 0, 1, ...: the mean of a
// block, its slope, ....
//
// Values of a run are coded in whole blocks. What is left behind them has a code as long, by the
// first rows of V made orthonormal; if it has no more values than a code, these are its code.
//
// Sums are in a fixed order: the same bits on every machine and SIMD target. Not shared between
// threads.
class BlockAutoencoder {
 public:
  // REQUIRES: 1 <= code <= block.
  BlockAutoencoder(size_t block, size_t code);

  size_t block() const noexcept { return block_; }

  // The floats of the code of a run of `values`; the most that two runs of so many together have.
  static size_t code_size(size_t values, size_t block, size_t code) noexcept;
  static size_t most_codes_of_two(size_t values, size_t block, size_t code) noexcept;
  size_t code_size(size_t values) const noexcept { return code_size(values, block_, code_); }

  // The codes of the n whole blocks, code value by code value (c n + b is value c of block b), then
  // that of what is left behind them. `decoded` receives what they decode to. A block that is too
  // large or too small to be decoded in fp32 (beyond 2^127, or all below 2^-100) has a code of
  // zeros. REQUIRES: finite values; codes.size() == code_size(values.size()); as many decoded as
  // values.
  void encode(std::span<const float> values, std::span<float> codes, std::span<float> decoded);

  // The reverse. Any codes will do; large ones give values that are not finite.
  void decode(std::span<const float> codes, std::span<float> values);

  // One step of training on whole blocks, one after another; none changes nothing. The new matrix
  // is written to `next`, as long as matrix(). REQUIRES: finite values, a multiple of block().
  void learn(std::span<const float> blocks, std::span<float> next);

  // V, column after column, with columns of norm basis_norm(block).
  std::span<const float> matrix() const noexcept { return matrix_; }
  void set_matrix(std::span<const float> matrix);

 private:
  struct Basis {
    AlignedVector<float> columns, scaled;  // scaled: by the norm squared, for codes
  };

  Basis make_basis(AlignedVector<float> columns, size_t length);
  const Basis& first_rows(size_t length);
  void encode_blocks(std::span<const float> values, const Basis& basis, size_t length,
                     std::span<float> codes, std::span<float> decoded) const;

  size_t block_, code_;
  BasisMaker maker_;
  AlignedVector<float> matrix_;
  Basis whole_;
  std::vector<Basis> rows_;  // by length; empty until needed
};

}  // namespace thinwire
