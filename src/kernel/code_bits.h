// Codes of k bits, one per byte, to a string of bits and back. Bit-identical on every SIMD target.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire::kernel {

// Bytes that `count` codes of `bits` bits take.
constexpr size_t code_bytes(size_t count, size_t bits) noexcept { return (count * bits + 7) / 8; }

// Bit b of codes[i] becomes bit i * bits + b of the string; bits fill each byte from bit 0 up, the
// unused ones of the last byte are 0.
// REQUIRES: 1 <= bits <= 8; codes below 2^bits; out.size() == code_bytes(codes.size(), bits).
void pack_codes(std::span<const uint8_t> codes, size_t bits, std::span<std::byte> out) noexcept;

// The reverse. Unused bits are not looked at.
// REQUIRES: 1 <= bits <= 8; bytes.size() == code_bytes(codes.size(), bits).
void unpack_codes(std::span<const std::byte> bytes, size_t bits, std::span<uint8_t> codes) noexcept;

}  // namespace thinwire::kernel
