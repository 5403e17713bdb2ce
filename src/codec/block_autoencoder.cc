// Codes are products with a thin matrix, and so is a step of training (kernel/thin_products.h).
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_autoencoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernel/thin_products.h"

namespace thinwire {
namespace {

// Sums and differences of magnitudes up to the first are finite; products of the second with values
// of V are normal numbers.
constexpr float kLargest = std::numeric_limits<float>::max() / 2;
constexpr float kSmallest = 0x1p-100f;

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// False for NaN, too.
bool all_within(std::span<const float> values, float bound) {
  return std::all_of(values.begin(), values.end(), [&](float x) { return std::abs(x) <= bound; });
}

}  // namespace

BlockAutoencoder::BlockAutoencoder(size_t block, size_t code) : block_(block), code_(code) {
  AlignedVector<float> columns(block * code);
  // Each column is the one before times x, x from -1 to 1, and orthogonal to all before.
  for (size_t c = 0; c < code; ++c) {
    for (size_t i = 0; i < block; ++i) {
      const double x = (2.0 * static_cast<double>(i) + 1) / static_cast<double>(block) - 1;
      columns[c * block + i] = c == 0 ? 1.0f : static_cast<float>(x * columns[(c - 1) * block + i]);
    }
    maker_.make(std::span(columns).first((c + 1) * block), block);
  }
  set_matrix(columns);
}

void BlockAutoencoder::set_matrix(std::span<const float> matrix) {
  matrix_.assign(matrix.begin(), matrix.end());
  whole_ = make_basis(matrix_, block_);
  rows_.assign(block_, {});
}

BlockAutoencoder::Basis BlockAutoencoder::make_basis(AlignedVector<float> columns, size_t length) {
  Basis basis{.columns = std::move(columns), .scaled = {}};
  basis.scaled = basis.columns;
  const float norm = basis_norm(length);
  for (float& x : basis.scaled) x /= norm * norm;
  return basis;
}

const BlockAutoencoder::Basis& BlockAutoencoder::first_rows(size_t length) {
  Basis& basis = rows_[length];
  if (!basis.columns.empty()) return basis;
  AlignedVector<float> columns;
  for (size_t c = 0; c < code_; ++c)
    columns.insert(columns.end(), matrix_.begin() + static_cast<std::ptrdiff_t>(c * block_),
                   matrix_.begin() + static_cast<std::ptrdiff_t>(c * block_ + length));
  maker_.make(columns, length);
  return basis = make_basis(std::move(columns), length);
}

size_t BlockAutoencoder::code_size(size_t values, size_t block, size_t code) noexcept {
  return values / block * code + std::min(values % block, code);
}

// What two runs leave behind their whole blocks is together values % block, or a block more than
// that.
size_t BlockAutoencoder::most_codes_of_two(size_t values, size_t block, size_t code) noexcept {
  const size_t whole = values / block, left = values % block;
  const size_t most = whole * code + std::min(left, 2 * code);
  if (whole == 0) return most;
  return std::max(most, (whole - 1) * code + std::min(block + left, 2 * code));
}

void BlockAutoencoder::encode_blocks(std::span<const float> values, const Basis& basis,
                                     size_t length, std::span<float> codes,
                                     std::span<float> decoded) const {
  const size_t blocks = values.size() / length;
  const kernel::ThinShape shape{.rows = blocks, .columns = length, .rank = code_};
  kernel::times_right(values, basis.scaled, shape, codes);
  kernel::set_product(codes, basis.columns, shape, decoded);
  for (size_t b = 0; b < blocks; ++b) {
    const float largest = largest_of(values.subspan(b * length, length));
    const auto to = decoded.subspan(b * length, length);
    if (largest >= kSmallest && largest <= kLargest && all_within(to, kLargest)) continue;
    for (size_t c = 0; c < code_; ++c) codes[c * blocks + b] = 0;
    std::fill(to.begin(), to.end(), 0.0f);
  }
}

void BlockAutoencoder::encode(std::span<const float> values, std::span<float> codes,
                              std::span<float> decoded) {
  const size_t blocks = values.size() / block_, whole = blocks * block_;
  if (blocks > 0)
    encode_blocks(values.first(whole), whole_, block_, codes.first(blocks * code_),
                  decoded.first(whole));
  const auto left = values.subspan(whole);
  const auto code = codes.subspan(blocks * code_);
  if (left.size() > code_) {
    encode_blocks(left, first_rows(left.size()), left.size(), code, decoded.subspan(whole));
  } else {
    std::copy(left.begin(), left.end(), code.begin());
    std::copy(left.begin(), left.end(), decoded.subspan(whole).begin());
  }
}

void BlockAutoencoder::decode(std::span<const float> codes, std::span<float> values) {
  const size_t blocks = values.size() / block_, whole = blocks * block_;
  if (blocks > 0)
    kernel::set_product(codes.first(blocks * code_), whole_.columns,
                        {.rows = blocks, .columns = block_, .rank = code_}, values.first(whole));
  const auto left = values.subspan(whole);
  const auto code = codes.subspan(blocks * code_);
  if (left.size() > code_)
    kernel::set_product(code, first_rows(left.size()).columns,
                        {.rows = 1, .columns = left.size(), .rank = code_}, left);
  else
    std::copy(code.begin(), code.end(), left.begin());
}

// Scaled by a power of two, so that squares neither overflow nor vanish.
void BlockAutoencoder::learn(std::span<const float> blocks, std::span<float> next) {
  std::copy(matrix_.begin(), matrix_.end(), next.begin());
  const float largest = largest_of(blocks);
  if (largest < kSmallest) return;
  const int exponent = std::ilogb(largest);
  AlignedVector<float> x(blocks.size());
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(blocks[i], -exponent);
    squares += double{x[i]} * x[i];
  }
  const kernel::ThinShape shape{.rows = x.size() / block_, .columns = block_, .rank = code_};
  AlignedVector<float> codes(shape.left()), gradient(shape.right());
  kernel::times_right(x, whole_.scaled, shape, codes);  // X V / norm^2
  kernel::times_left(x, codes, shape, gradient);        // X^T X V / norm^2
  const double rate = double{basis_norm(block_)} * basis_norm(block_) / squares;
  for (size_t i = 0; i < next.size(); ++i)
    next[i] = static_cast<float>(next[i] + rate * gradient[i]);
  maker_.make(next, block_);
}

}  // namespace thinwire
