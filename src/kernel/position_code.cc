// Rice coding of positions, with low and high bits apart. Plain 64-bit code: about two
// nanoseconds per position each way, and the same bytes on every machine.
// SPDX-License-Identifier: Apache-2.0
#include "kernel/position_code.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace thinwire::kernel {
namespace {

using Gaps = std::array<uint32_t, kPositionBlock>;

constexpr size_t low_bytes(size_t kept, unsigned parameter) { return (kept * parameter + 7) / 8; }

// floor(log2(mean gap)), 0 below 2: for random positions the best parameter or one above it.
unsigned first_parameter(uint64_t gap_sum, uint64_t kept) {
  return gap_sum < kept ? 0 : static_cast<unsigned>(std::bit_width(gap_sum / kept)) - 1;
}

// Gaps that cluster want less than their mean says. The zeros grow and the low bits shrink as the
// parameter falls; the first time that costs bits ends the search.
unsigned best_parameter(std::span<const uint32_t> gaps) {
  uint32_t gap_sum = 0;  // all gaps together are less than the count: 32 bits suffice
  for (const uint32_t gap : gaps) gap_sum += gap;
  unsigned parameter = first_parameter(gap_sum, gaps.size());
  while (parameter > 0) {
    uint32_t more_zeros = 0;
    for (const uint32_t gap : gaps) more_zeros += (gap >> (parameter - 1)) - (gap >> parameter);
    if (more_zeros >= gaps.size()) break;
    --parameter;
  }
  return parameter;
}

// The gaps of one block; `base` is the least that its first position can be.
std::span<const uint32_t> gaps_of(std::span<const uint32_t> positions, uint32_t base, Gaps& gaps) {
  gaps[0] = positions[0] - base;
  for (size_t i = 1; i < positions.size(); ++i) gaps[i] = positions[i] - positions[i - 1] - 1;
  return std::span(gaps).first(positions.size());
}

// Calls visit(index of the block, its gaps) for every block.
template <typename Visit>
void for_each_block(std::span<const uint32_t> positions, const Visit& visit) {
  Gaps gaps;
  uint32_t base = 0;
  for (size_t begin = 0; begin < positions.size(); begin += kPositionBlock) {
    const size_t kept = std::min(kPositionBlock, positions.size() - begin);
    const auto block = positions.subspan(begin, kept);
    assert(block[0] >= base);
    visit(begin / kPositionBlock, gaps_of(block, base, gaps));
    base = block.back() + 1;
  }
}

// Collects bits and writes them eight bytes at a time.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // Appends the low `bits` bits of `value`, which has no others. REQUIRES: bits < 64.
  void put(uint64_t value, unsigned bits) {
    word_ |= value << fill_;
    fill_ += bits;
    if (fill_ < 64) return;
    flush(8);
    fill_ -= 64;
    word_ = fill_ == 0 ? 0 : value >> (bits - fill_);
  }

  // Appends `zeros` zeros and a one.
  void put_unary(uint64_t zeros) {
    uint64_t fill = fill_ + zeros;
    for (; fill >= 64; fill -= 64) {
      flush(8);
      word_ = 0;
    }
    word_ |= uint64_t{1} << fill;
    fill_ = static_cast<unsigned>(fill) + 1;  // 64 is flushed by whatever comes next
  }

  // Writes what is left, up to a whole byte, and returns the end.
  std::byte* finish() {
    flush((fill_ + 7) / 8);
    word_ = fill_ = 0;
    return out_;
  }

 private:
  void flush(size_t size) {
    std::memcpy(out_, &word_, size);
    out_ += size;
  }

  std::byte* out_;
  uint64_t word_ = 0;
  unsigned fill_ = 0;
};

}  // namespace

// A block of n gaps with mean m costs at most n f(m) with the parameter searched first, where
// f(m) = b + 1 + m / 2^b, b = floor(log2(m)) or 0. f is concave (it joins the points (2^b, b + 2)),
// so all blocks together cost at most k f((count - k) / k), and that only grows with k.
size_t max_position_bytes(size_t count, size_t max_kept) noexcept {
  if (max_kept == 0) return 0;
  const uint64_t gap_sum = count - max_kept;
  const unsigned parameter = first_parameter(gap_sum, max_kept);
  const uint64_t bits = uint64_t{max_kept} * (parameter + 1) + (gap_sum >> parameter);
  const size_t blocks = (max_kept + kPositionBlock - 1) / kPositionBlock;
  return blocks + bits / 8 + 2;  // low[] and high[] are filled up to whole bytes
}

size_t pack_positions(std::span<const uint32_t> positions, std::span<std::byte> out) noexcept {
  if (positions.empty()) return 0;
  const size_t blocks = (positions.size() + kPositionBlock - 1) / kPositionBlock;
  const auto parameters = out.first(blocks);
  size_t high_begin = blocks;
  for_each_block(positions, [&](size_t block, std::span<const uint32_t> gaps) {
    const unsigned parameter = best_parameter(gaps);
    parameters[block] = static_cast<std::byte>(parameter);
    high_begin += low_bytes(gaps.size(), parameter);
  });

  BitWriter low(out.data() + blocks), high(out.data() + high_begin);
  for_each_block(positions, [&](size_t block, std::span<const uint32_t> gaps) {
    const auto parameter = std::to_integer<unsigned>(parameters[block]);
    const uint32_t low_bits = (uint32_t{1} << parameter) - 1;
    BitWriter to = low;
    if (parameter > 0)
      for (const uint32_t gap : gaps) to.put(gap & low_bits, parameter);
    low = to;
    to = high;
    for (const uint32_t gap : gaps) to.put_unary(gap >> parameter);
    high = to;
  });
  low.finish();
  const size_t size = static_cast<size_t>(high.finish() - out.data());
  assert(size <= out.size());
  return size;
}

PositionReader::PositionReader(std::span<const std::byte> bytes, size_t count, size_t kept) noexcept
    : bytes_(bytes), count_(count), left_(kept) {
  const size_t blocks = (kept + kPositionBlock - 1) / kPositionBlock;
  if (blocks > bytes.size()) {
    broken_ = true;
    return;
  }
  size_t high = blocks;
  for (size_t block = 0; block < blocks; ++block) {
    const auto parameter = std::to_integer<unsigned>(bytes[block]);
    broken_ |= parameter > 31;
    high += low_bytes(std::min(kPositionBlock, kept - block * kPositionBlock), parameter);
  }
  low_ = blocks;
  high_ = high;
  gap_bit_ = 8 * uint64_t{high};
  broken_ |= high > bytes.size();
}

std::span<const uint32_t> PositionReader::next() noexcept {
  const size_t kept = std::min(kPositionBlock, left_);
  if (kept == 0 || broken_) return {};
  const auto parameter = std::to_integer<unsigned>(bytes_[parameter_++]);
  place_ = {
      .low = low_, .high = gap_bit_, .base = static_cast<uint32_t>(base_), .parameter = parameter};
  broken_ = !read_high(kept) || !read_low(kept, parameter);
  if (broken_) return {};
  left_ -= kept;
  return std::span(positions_).first(kept);
}

// Leaves in positions_[i] the zeros of this block before the one that ends gap i, cut to 32 bits,
// and in zeros_ the last of these, uncut.
bool PositionReader::read_high(size_t kept) noexcept {
  const uint64_t begin = gap_bit_;
  size_t i = 0;
  while (true) {
    const size_t end = std::min(kept, i + static_cast<size_t>(std::popcount(word_)));
    const uint64_t offset = bit_ - begin;
    for (; i < end; ++i, word_ &= word_ - 1) {
      zeros_ = offset + static_cast<uint64_t>(std::countr_zero(word_)) - i;
      positions_[i] = static_cast<uint32_t>(zeros_);
    }
    if (i == kept) break;
    const size_t size = std::min(bytes_.size() - high_, sizeof word_);
    if (size == 0) return false;
    bit_ = 8 * uint64_t{high_};
    std::memcpy(&word_, bytes_.data() + high_, size);  // was zero: all its ones are used
    high_ += size;
  }
  gap_bit_ = begin + zeros_ + kept;
  return true;
}

// Position i = base + sum of low bits up to i + (zeros up to i << b) + i. They ascend, so the last
// one vouches for all.
bool PositionReader::read_low(size_t kept, unsigned parameter) noexcept {
  if (zeros_ > count_ >> parameter) return false;
  const size_t size = low_bytes(kept, parameter);
  const std::byte* low = bytes_.data() + low_;
  std::array<std::byte, low_bytes(kPositionBlock, 31) + sizeof(uint64_t)> padded;
  if (bytes_.size() - low_ < size + sizeof(uint64_t)) {  // the loop loads eight bytes at a time
    std::memcpy(padded.data(), low, size);
    std::memset(padded.data() + size, 0, sizeof(uint64_t));
    low = padded.data();
  }
  low_ += size;

  const uint64_t mask = (uint64_t{1} << parameter) - 1;
  uint64_t sum = base_;
  uint64_t position = 0;
  size_t bit = 0;
  for (size_t i = 0; i < kept; ++i, bit += parameter) {
    uint64_t word;
    std::memcpy(&word, low + bit / 8, sizeof word);
    sum += word >> (bit % 8) & mask;
    position = sum + i + (uint64_t{positions_[i]} << parameter);
    positions_[i] = static_cast<uint32_t>(position);
  }
  base_ = position + 1;
  const bool clean = bit % 8 == 0 || std::to_integer<unsigned>(low[size - 1]) >> (bit % 8) == 0;
  return clean && position < count_;
}

bool PositionReader::done() const noexcept {
  return !broken_ && left_ == 0 && word_ == 0 && (gap_bit_ + 7) / 8 == bytes_.size();
}

}  // namespace thinwire::kernel
