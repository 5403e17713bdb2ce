// SHA-1 and SHA-256, the checksums that publishers of data sets give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace thinwire {

enum class DigestKind { kSha1, kSha256 };

// In lower-case hexadecimal digits.
std::string digest_of(std::span<const std::byte> bytes, DigestKind kind);

}  // namespace thinwire
