// Whole files, unpacked: plain, gzip and xz, told apart by their first bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace thinwire {

// The largest content that is unpacked. Ten times the largest data set we know; less than what a
// small file of zeros would otherwise become in memory.
inline constexpr size_t kMaxContent = size_t{2} << 30;

// The content of a file. Throws Error: kIo when it cannot be read, kCorrupt when its packing is
// broken, ends early, is followed by something else, or holds more than `max_size` bytes.
std::vector<std::byte> read_file(const std::string& path, size_t max_size = kMaxContent);

}  // namespace thinwire
