// Unpacks gzip and xz by one loop: zlib and liblzma both read at next_in, write at next_out and
// count down the available bytes.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/compressed_file.h"

#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr uint64_t kXzMemory = uint64_t{1} << 30;  // xz -9 needs 65 MB

[[noreturn]] void corrupt(const std::string& path, const char* fault) {
  throw Error(ErrorCode::kCorrupt, path + ": " + fault);
}

// Room for at most one more chunk behind the first `used` bytes; never beyond max_size + 1, whose
// last byte tells "just fits" from "too much".
std::span<std::byte> grow(std::vector<std::byte>& content, size_t used, size_t max_size) {
  content.resize(used + std::min(kChunk, max_size + 1 - used));
  return std::span(content).subspan(used);
}

std::vector<std::byte> read_stored(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) throw Error(ErrorCode::kIo, path + ": " + std::strerror(errno));
  std::vector<std::byte> content;
  size_t used = 0;
  while (true) {
    const auto room = grow(content, used, SIZE_MAX - 1);
    const size_t got = std::fread(room.data(), 1, room.size(), file.get());
    used += got;
    if (std::ferror(file.get()) != 0) throw Error(ErrorCode::kIo, path + ": " + strerror(errno));
    if (got < room.size()) break;
  }
  content.resize(used);
  return content;
}

// A gzip file may be several members one after the other; their contents join.
std::vector<std::byte> gunzip(const std::string& path, std::span<std::byte> packed, size_t max) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, &inflateEnd);
  std::vector<std::byte> content;
  size_t used = 0;
  while (true) {
    if (stream.avail_in == 0) {  // zlib counts in 32 bits
      const size_t part = std::min(packed.size(), size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_in = static_cast<uInt>(part);
      packed = packed.subspan(part);
    }
    const auto room = grow(content, used, max);
    stream.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = static_cast<uInt>(room.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    used += room.size() - stream.avail_out;
    if (used > max) corrupt(path, "holds more than any data set");
    if (result == Z_STREAM_END) {
      if (stream.avail_in == 0 && packed.empty()) break;
      if (inflateReset(&stream) != Z_OK) corrupt(path, "broken gzip data");
    } else if (result == Z_BUF_ERROR && stream.avail_in == 0 && packed.empty()) {
      corrupt(path, "gzip data ends early");
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      corrupt(path, "broken gzip data");
    }
  }
  content.resize(used);
  return content;
}

std::vector<std::byte> unxz(const std::string& path, std::span<const std::byte> packed,
                            size_t max) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kXzMemory, LZMA_CONCATENATED) != LZMA_OK) throw std::bad_alloc();
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> owner(&stream, &lzma_end);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::vector<std::byte> content;
  size_t used = 0;
  while (true) {
    const auto room = grow(content, used, max);
    stream.next_out = reinterpret_cast<uint8_t*>(room.data());
    stream.avail_out = room.size();
    const lzma_ret result = lzma_code(&stream, LZMA_FINISH);
    used += room.size() - stream.avail_out;
    if (used > max) corrupt(path, "holds more than any data set");
    if (result == LZMA_STREAM_END) break;
    if (result == LZMA_MEMLIMIT_ERROR) corrupt(path, "needs more than 1 GiB to unpack");
    if (result == LZMA_BUF_ERROR) corrupt(path, "xz data ends early");
    if (result != LZMA_OK) corrupt(path, "broken xz data");
  }
  content.resize(used);
  return content;
}

template <size_t kSize>
bool starts_with(std::span<const std::byte> bytes, const std::array<uint8_t, kSize>& magic) {
  return bytes.size() >= kSize && std::memcmp(bytes.data(), magic.data(), kSize) == 0;
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, size_t max_size) {
  std::vector<std::byte> stored = read_stored(path);
  if (starts_with(stored, std::to_array<uint8_t>({0x1f, 0x8b}))) {
    return gunzip(path, stored, max_size);
  }
  if (starts_with(stored, std::to_array<uint8_t>({0xfd, '7', 'z', 'X', 'Z', 0}))) {
    return unxz(path, stored, max_size);
  }
  if (stored.size() > max_size) corrupt(path, "holds more than any data set");
  return stored;
}

}  // namespace thinwire
