// Sixteen-bit floats: IEEE binary16 ("half") and bfloat16 ("bfloat"), to and from fp32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire::kernel {

// Encoded values lie little endian, at any alignment, two bytes each: `bytes.size() == 2 * count`.
// Encoding rounds to nearest, ties to even, subnormals included; a NaN stays a NaN and is made
// quiet. Results are bit-identical on every SIMD target.

// Values that round beyond the largest finite one become Inf.
void to_half(std::span<const float> values, std::span<std::byte> bytes) noexcept;
void to_bfloat(std::span<const float> values, std::span<std::byte> bytes) noexcept;

// Values that round beyond the largest finite one (65504 and 3.39e38) become that one, Inf
// included. A non-empty `rest` receives values - decoded; it is as long as `values` and may be
// `values`.
void to_half_saturated(std::span<const float> values, std::span<std::byte> bytes,
                       std::span<float> rest = {}) noexcept;
void to_bfloat_saturated(std::span<const float> values, std::span<std::byte> bytes,
                         std::span<float> rest = {}) noexcept;

// out[i] = decoded. Exact. Returns whether all of them are finite.
bool from_half(std::span<const std::byte> bytes, std::span<float> out) noexcept;
bool from_bfloat(std::span<const std::byte> bytes, std::span<float> out) noexcept;

// out[i] += weight * decoded. Returns whether all of the decoded values are finite.
bool add_half(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept;
bool add_bfloat(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept;

// The same on arrays of bit patterns.
inline void to_half(std::span<const float> values, std::span<uint16_t> bits) noexcept {
  to_half(values, std::as_writable_bytes(bits));
}
inline void to_bfloat(std::span<const float> values, std::span<uint16_t> bits) noexcept {
  to_bfloat(values, std::as_writable_bytes(bits));
}
inline bool from_half(std::span<const uint16_t> bits, std::span<float> out) noexcept {
  return from_half(std::as_bytes(bits), out);
}
inline bool from_bfloat(std::span<const uint16_t> bits, std::span<float> out) noexcept {
  return from_bfloat(std::as_bytes(bits), out);
}

}  // namespace thinwire::kernel
