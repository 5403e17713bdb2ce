// BufferPool: memory for messages that is used again and again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace thinwire {

// Bytes that are not initialised: pages that no payload reaches are never touched, so a buffer may
// be as large as the worst case and cost what is used.
class Buffer {
 public:
  Buffer() = default;

  std::span<std::byte> bytes() noexcept { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_.get(), size_}; }

  // The first `count` floats that the bytes hold. REQUIRES: there is room for them.
  std::span<float> floats(size_t count) noexcept {
    assert(count <= size_ / sizeof(float));
    assert(reinterpret_cast<uintptr_t>(data_.get()) % alignof(float) == 0);
    return {reinterpret_cast<float*>(data_.get()), count};
  }

 private:
  friend class BufferPool;

  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;  // a power of two
};

// Gives out what was given back last, which is still in cache; allocates only when there is none,
// so that in the long run it has what is on its way at the same time. Not shared between threads.
class BufferPool {
 public:
  Buffer take(size_t size) {
    const size_t capacity = std::bit_ceil(size);
    auto& free = free_[static_cast<size_t>(std::countr_zero(capacity))];
    Buffer buffer;
    if (free.empty()) {
      buffer.data_ = std::make_unique_for_overwrite<std::byte[]>(capacity);
      buffer.capacity_ = capacity;
    } else {
      buffer = std::move(free.back());
      free.pop_back();
    }
    buffer.size_ = size;
    return buffer;
  }

  // Leaves `buffer` empty; an empty one may be given.
  void give(Buffer& buffer) {
    if (buffer.data_ == nullptr) return;
    free_[static_cast<size_t>(std::countr_zero(buffer.capacity_))].push_back(std::move(buffer));
    buffer = {};
  }

 private:
  std::array<std::vector<Buffer>, 64> free_;  // by the logarithm of the capacity
};

}  // namespace thinwire
