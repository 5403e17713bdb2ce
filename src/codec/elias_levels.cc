// A 64-bit window on the string each way.
// SPDX-License-Identifier: Apache-2.0
#include "codec/elias_levels.h"

#include <bit>
#include <cstring>

namespace thinwire {
namespace {

unsigned log2_of(unsigned value) { return static_cast<unsigned>(std::bit_width(value)) - 1; }

class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : begin_(out), out_(out) {}

  void put(uint64_t bits, unsigned count) {
    window_ |= bits << filled_;
    filled_ += count;
    while (filled_ >= 8) {
      *out_++ = static_cast<std::byte>(window_ & 0xFF);
      window_ >>= 8;
      filled_ -= 8;
    }
  }

  void put_gamma(unsigned value) {
    const unsigned log = log2_of(value);
    put(uint64_t{1} << log, log + 1);
    put(value - (1u << log), log);
  }

  size_t finish() {
    if (filled_ > 0) *out_++ = static_cast<std::byte>(window_ & 0xFF);
    return static_cast<size_t>(out_ - begin_);
  }

 private:
  std::byte* begin_;
  std::byte* out_;
  uint64_t window_ = 0;
  unsigned filled_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // 0 when the bytes end.
  unsigned get_gamma() {
    unsigned log = 0;
    while (log < 32 && !get()) ++log;
    if (log == 32 || !ok_) return 0;
    unsigned value = 1u << log;
    for (unsigned i = 0; i < log; ++i) value |= unsigned{get()} << i;
    return ok_ ? value : 0;
  }

  bool get() {
    if (at_ / 8 >= bytes_.size()) {
      ok_ = false;
      return false;
    }
    const bool bit = std::to_integer<unsigned>(bytes_[at_ / 8]) >> at_ % 8 & 1;
    ++at_;
    return bit;
  }

  // The bytes that were begun, if nothing is set in the last after what was read.
  std::optional<size_t> finish() {
    if (!ok_) return {};
    while (at_ % 8 != 0)
      if (get()) return {};
    return at_ / 8;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

size_t max_elias_size(size_t count, unsigned most) noexcept {
  return (count * (2 + 2 * log2_of(most) + 1) + 1 + 7) / 8;
}

size_t write_elias(std::span<const int8_t> levels, std::span<std::byte> out) noexcept {
  BitWriter writer(out.data());
  size_t next = 0;  // the first position that is not yet coded
  for (size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == 0) continue;
    const int level = levels[i];
    writer.put_gamma(static_cast<unsigned>(i - next + 1));
    writer.put(level < 0, 1);
    writer.put_gamma(static_cast<unsigned>(level < 0 ? -level : level));
    next = i + 1;
  }
  writer.put_gamma(static_cast<unsigned>(levels.size() - next + 1));
  return writer.finish();
}

std::optional<size_t> read_elias(std::span<const std::byte> bytes, size_t count, unsigned most,
                                 const std::function<void(size_t, int)>& take) {
  BitReader reader(bytes);
  for (size_t next = 0;;) {
    const unsigned gap = reader.get_gamma();
    if (gap == 0 || gap > count - next + 1) return {};
    const size_t position = next + gap - 1;
    if (position == count) return reader.finish();
    const bool negative = reader.get();
    const unsigned magnitude = reader.get_gamma();
    if (magnitude == 0 || magnitude > most) return {};
    take(position, negative ? -static_cast<int>(magnitude) : static_cast<int>(magnitude));
    next = position + 1;
  }
}

}  // namespace thinwire
