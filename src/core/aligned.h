// Vectors for long arrays: they start on a cache line, and large ones lie in huge pages where the
// system has them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace thinwire {

inline constexpr size_t kCacheLine = 64;  // bytes: what non-temporal stores of whole vectors need

// Memory that starts on a cache line. Throws std::bad_alloc. Given back with the size it was asked
// for.
void* allocate_aligned(size_t size);
void free_aligned(void* memory, size_t size) noexcept;

template <typename T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>& /*other*/) noexcept {}  // NOLINT: implicit

  T* allocate(size_t count) { return static_cast<T*>(allocate_aligned(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) noexcept { free_aligned(memory, count * sizeof(T)); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace thinwire
