// Views of objects as bytes, and little-endian reading and writing of byte spans, checked on the
// reading side.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace thinwire {

static_assert(std::endian::native == std::endian::little,
              "the wire is little endian, and so far is every machine thinwire runs on");

// The bytes of one object.
template <typename T>
requires std::is_trivially_copyable_v<T> std::span<const std::byte> byte_view(const T& value)
noexcept { return std::as_bytes(std::span(&value, 1)); }

template <typename T>
requires std::is_trivially_copyable_v<T> std::span<std::byte> writable_byte_view(T& value)
noexcept { return std::as_writable_bytes(std::span(&value, 1)); }

// Writes values one after another. REQUIRES: the span is large enough; encoders size it beforehand.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) noexcept : out_(out) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) noexcept { std::memcpy(take(sizeof(T)).data(), &value, sizeof(T)); }

  void put_bytes(std::span<const std::byte> bytes) noexcept {
    const auto to = take(bytes.size());
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  }

  // The next `size` bytes, for the caller to fill.
  std::span<std::byte> take(size_t size) noexcept {
    assert(size <= out_.size() - at_);
    const auto taken = out_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  size_t written() const noexcept { return at_; }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

// Reads bytes that may be anything. A read past the end gives zeros or an empty span and makes ok()
// false for good, so that a decoder may read a whole header and check once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T get()
  noexcept {
    T value{};
    const auto from = take(sizeof(T));
    if (from.size() == sizeof(T)) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> take(size_t size) noexcept {
    if (size > remaining()) {
      ok_ = false;
      at_ = bytes_.size();
      return {};
    }
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  size_t remaining() const noexcept { return bytes_.size() - at_; }
  bool ok() const noexcept { return ok_; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace thinwire
