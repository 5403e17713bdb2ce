// Adds fp32 values that are given as bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire::kernel {

// out[i] += weight * the i-th little-endian float of `bytes`, which lie at any alignment. Returns
// whether all of the floats are finite. REQUIRES: bytes.size() == 4 * out.size().
bool add_floats(std::span<const std::byte> bytes, float weight, std::span<float> out) noexcept;

}  // namespace thinwire::kernel
