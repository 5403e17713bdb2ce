// Reads tar archives in format ustar [POSIX.1-1988]: blocks of 512 bytes. Each file is a header
// and its content, filled up to whole blocks; a block of zeros ends the archive. Of a header:
//
//   0 name (100)   124 size, octal (12)   148 checksum, octal (8)   156 type   345 prefix (155)
//
// SPDX-License-Identifier: Apache-2.0
#include "train/data/tar_reader.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr size_t kBlock = 512;

// The characters of a field up to its first zero.
std::string_view field(std::span<const std::byte> header, size_t offset, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + offset, size);
  return text.substr(0, text.find('\0'));
}

// Octal digits between blanks; 12 of them fit into 36 bits.
std::optional<uint64_t> octal(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(digit - '0');
  }
  return value;
}

// The sum of all bytes of the header, its own field counted as blanks.
uint64_t header_sum(std::span<const std::byte> header) {
  uint64_t sum = 8 * ' ';
  for (size_t i = 0; i < kBlock; ++i)
    if (i < 148 || i >= 156) sum += std::to_integer<uint64_t>(header[i]);
  return sum;
}

}  // namespace

std::vector<TarFile> read_tar(std::span<const std::byte> archive, const std::string& origin) {
  const auto fail = [&](const char* fault) {
    return Error(ErrorCode::kCorrupt, origin + ": " + fault);
  };
  std::vector<TarFile> files;
  while (true) {
    if (archive.size() < kBlock) throw fail("tar archive ends early");
    const auto header = archive.first(kBlock);
    if (std::ranges::all_of(header, [](std::byte byte) { return byte == std::byte{0}; })) break;
    if (octal(field(header, 148, 8)) != header_sum(header)) throw fail("not a tar archive");
    const auto size = octal(field(header, 124, 12));
    if (!size) throw fail("a file in the tar archive has no size");
    archive = archive.subspan(kBlock);
    const uint64_t room = (*size + kBlock - 1) / kBlock * kBlock;
    if (room > archive.size()) throw fail("tar archive ends early");
    const char type = static_cast<char>(header[156]);
    if (type == '0' || type == '\0') {
      const std::string prefix(field(header, 345, 155));
      files.push_back({(prefix.empty() ? "" : prefix + "/") + std::string(field(header, 0, 100)),
                       archive.first(*size)});
    }
    archive = archive.subspan(room);
  }
  return files;
}

}  // namespace thinwire
