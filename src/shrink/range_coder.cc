// Codes bits by dividing an interval in proportion to what is expected.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/range_coder.h"

#include <algorithm>
#include <utility>

namespace thinwire {
namespace {

constexpr uint32_t kWhole = 1 << 16;
constexpr uint32_t kLeast = kWhole / 256;
constexpr uint32_t kWiden = 1 << 24;
constexpr int kFast = 5, kSlow = 7;  // a bit moves an estimate by 1/32 and 1/128 of the way

}  // namespace

uint32_t BitModel::zero() const noexcept {
  return std::clamp((fast_ + slow_) / 2, kLeast, kWhole - kLeast);
}

void BitModel::see(bool bit) noexcept {
  if (bit) {
    fast_ -= fast_ >> kFast;
    slow_ -= slow_ >> kSlow;
  } else {
    fast_ += (kWhole - fast_) >> kFast;
    slow_ += (kWhole - slow_) >> kSlow;
  }
}

bool RangeEncoder::code(BitModel& model, bool bit) {
  const uint32_t bound = (range_ >> 16) * model.zero();
  if (bit) {
    low_ += bound;
    range_ -= bound;
  } else {
    range_ = bound;
  }
  model.see(bit);
  while (range_ < kWiden) {
    range_ <<= 8;
    shift();
  }
  return bit;
}

void RangeEncoder::shift() {
  const auto carry = static_cast<uint8_t>(low_ >> 32);
  if (carry != 0 || low_ < 0xFF000000) {
    uint8_t byte = cache_;
    for (; held_ > 0; --held_) {
      out_.push_back(static_cast<std::byte>(byte + carry));
      byte = 0xFF;
    }
    cache_ = static_cast<uint8_t>(low_ >> 24);
  }
  ++held_;
  low_ = (low_ & 0x00FFFFFF) << 8;
}

std::vector<std::byte> RangeEncoder::finish() {
  for (int i = 0; i < 5; ++i) shift();
  return std::move(out_);
}

RangeDecoder::RangeDecoder(std::span<const std::byte> bytes) : bytes_(bytes) {
  for (int i = 0; i < 5; ++i) code_ = code_ << 8 | next();
}

uint8_t RangeDecoder::next() noexcept {
  const uint8_t byte = at_ < bytes_.size() ? std::to_integer<uint8_t>(bytes_[at_]) : 0;
  ++at_;
  return byte;
}

bool RangeDecoder::code(BitModel& model, bool /*ignored*/) {
  const uint32_t bound = (range_ >> 16) * model.zero();
  const bool bit = code_ >= bound;
  if (bit) {
    code_ -= bound;
    range_ -= bound;
  } else {
    range_ = bound;
  }
  model.see(bit);
  while (range_ < kWiden) {
    range_ <<= 8;
    code_ = code_ << 8 | next();
  }
  return bit;
}

}  // namespace thinwire
