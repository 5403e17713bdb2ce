// Elias strings through a window of at least 57 bits; zeros are skipped eight at a time.
// SPDX-License-Identifier: Apache-2.0
#include "codec/elias_levels.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace thinwire {
namespace {

unsigned log2_of(unsigned value) { return static_cast<unsigned>(std::bit_width(value)) - 1; }

class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> out)
      : begin_(out.data()), out_(begin_), end_(begin_ + out.size()) {}

  // REQUIRES: count <= 33.
  void put(uint64_t bits, unsigned count) {
    window_ |= bits << filled_;
    filled_ += count;
    const unsigned whole = filled_ / 8;  // up to five bytes
    std::memcpy(out_, &window_, end_ - out_ >= 8 ? 8 : whole);
    out_ += whole;
    window_ >>= 8 * whole;
    filled_ -= 8 * whole;
  }

  void put_gamma(unsigned value) {
    const unsigned log = log2_of(value);
    put(uint64_t{1} << log | uint64_t{value - (1u << log)} << (log + 1), 2 * log + 1);
  }

  size_t finish() {
    if (filled_ > 0) *out_++ = static_cast<std::byte>(window_ & 0xFF);
    return static_cast<size_t>(out_ - begin_);
  }

 private:
  std::byte* begin_;
  std::byte* out_;
  std::byte* end_;
  uint64_t window_ = 0;
  unsigned filled_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // 0 when the bytes end, or for a number that no string holds.
  unsigned get_gamma() {
    const uint64_t next = window();
    const auto log = static_cast<unsigned>(std::countr_zero(next));
    if (log > 16 || !skip(2 * log + 1)) return 0;
    return 1u << log | (static_cast<unsigned>(next >> (log + 1)) & ((1u << log) - 1));
  }

  // False when the bytes end; what follows then fails too.
  bool get() {
    const bool bit = window() & 1;
    return skip(1) && bit;
  }

  // The bytes that were begun, if nothing is set in the last after what was read.
  std::optional<size_t> finish() const {
    const size_t size = (at_ + 7) / 8;
    if (at_ % 8 != 0 && std::to_integer<unsigned>(bytes_[size - 1]) >> at_ % 8 != 0) return {};
    return size;
  }

 private:
  // The bits from at_ on, zeros after the last byte.
  uint64_t window() const {
    const size_t first = std::min(at_ / 8, bytes_.size());
    uint64_t word = 0;
    const size_t left = bytes_.size() - first;
    if (left >= sizeof word)
      std::memcpy(&word, bytes_.data() + first, sizeof word);
    else if (left > 0)
      std::memcpy(&word, bytes_.data() + first, left);
    return word >> at_ % 8;
  }

  bool skip(unsigned count) {
    at_ += count;
    return at_ <= 8 * bytes_.size();
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace

size_t max_elias_size(size_t count, unsigned most) noexcept {
  return (count * (2 + 2 * log2_of(most) + 1) + 1 + 7) / 8;
}

EliasSize write_elias(std::span<const uint8_t> codes, size_t bits,
                      std::span<std::byte> out) noexcept {
  assert(codes.size() <= size_t{1} << 16);
  const int negatives = 1 << (bits - 1);  // codes from here on are negative
  BitWriter writer(out);
  size_t next = 0;  // the first position that is not yet coded
  size_t kept = 0;
  const auto put = [&](size_t i) {
    const int level = codes[i] < negatives ? codes[i] : codes[i] - 2 * negatives;
    writer.put_gamma(static_cast<unsigned>(i - next + 1));
    writer.put(level < 0, 1);
    writer.put_gamma(static_cast<unsigned>(level < 0 ? -level : level));
    next = i + 1;
    ++kept;
  };
  size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8) {
    uint64_t eight;
    std::memcpy(&eight, &codes[i], sizeof eight);
    while (eight != 0) {
      const auto at = static_cast<unsigned>(std::countr_zero(eight)) / 8;
      put(i + at);
      eight &= ~(uint64_t{0xFF} << 8 * at);
    }
  }
  for (; i < codes.size(); ++i)
    if (codes[i] != 0) put(i);
  writer.put_gamma(static_cast<unsigned>(codes.size() - next + 1));
  return {.size = writer.finish(), .kept = kept};
}

std::optional<size_t> add_elias(std::span<const std::byte> bytes, unsigned most, float scale,
                                std::span<float> out) noexcept {
  BitReader reader(bytes);
  for (size_t next = 0;;) {
    const unsigned gap = reader.get_gamma();
    if (gap == 0 || gap > out.size() - next + 1) return {};
    const size_t position = next + gap - 1;
    if (position == out.size()) return reader.finish();
    const bool negative = reader.get();
    const unsigned magnitude = reader.get_gamma();
    if (magnitude == 0 || magnitude > most) return {};
    const auto level = static_cast<float>(magnitude);
    out[position] += (negative ? -level : level) * scale;
    next = position + 1;
  }
}

}  // namespace thinwire
