// An adaptive binary range coder: bits in, bytes out, near the entropy of what the models expect.
//
// The coder is that of LZMA [Martin, 1979; Pavlov]: a carry is kept back until it is known, and the
// interval is widened by a byte whenever less than 2^24 of it is left. A model is the mean of a
// fast and a slow estimate of how often its bit was zero.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thinwire {

// What is expected of one kind of bit. Encoder and decoder each have their own and see the same
// bits.
class BitModel {
 public:
  // The probability of a zero in 65536ths. It stays between 1/256 and 255/256.
  uint32_t zero() const noexcept;
  void see(bool bit) noexcept;

 private:
  uint32_t fast_ = 1 << 15, slow_ = 1 << 15;
};

// More bits a byte never stands for: a bit leaves at most 255/256 + 1/65536 of the interval (the
// latter as 16 bits are cut off), and 8 / -log2 of that is 1422.4.
inline constexpr uint64_t kMostBitsPerByte = 1423;

class RangeEncoder {
 public:
  // Writes the bit and returns it.
  bool code(BitModel& model, bool bit);

  // The bytes. After the last bit.
  std::vector<std::byte> finish();

 private:
  void shift();

  std::vector<std::byte> out_;
  uint64_t low_ = 0;
  uint32_t range_ = 0xFFFFFFFF;
  uint64_t held_ = 1;  // bytes that a carry may still change: `cache_`, and 0xFF behind it
  uint8_t cache_ = 0;
};

// Reads bytes that may be anything: every sequence of bytes is some sequence of bits.
class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const std::byte> bytes);

  // The next bit. The second argument is ignored; it is there so that one routine can encode and
  // decode.
  bool code(BitModel& model, bool ignored = false);

  // Whether exactly the bytes were read that the encoder of these bits wrote.
  bool is_at_end() const noexcept { return at_ == bytes_.size(); }

  // Whether bits were read that no byte stands for.
  bool is_past_end() const noexcept { return at_ > bytes_.size(); }

 private:
  uint8_t next() noexcept;

  std::span<const std::byte> bytes_;
  size_t at_ = 0;  // beyond the end where zeros were read instead
  uint32_t range_ = 0xFFFFFFFF;
  uint32_t code_ = 0;
};

}  // namespace thinwire
