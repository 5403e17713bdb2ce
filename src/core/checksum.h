// XXH3, the checksum of frames and of agreed texts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire {

// XXH3-64 with seed 0 over the bytes of the first span, then of the second.
uint64_t checksum(std::span<const std::byte> first, std::span<const std::byte> second = {});

}  // namespace thinwire
