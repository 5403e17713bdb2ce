// Aligned allocation, with the system call that asks for huge pages for long arrays.
// SPDX-License-Identifier: Apache-2.0
#include "core/aligned.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <new>

namespace thinwire {
namespace {

// Scattered writes into 100 MB, a few per 4 KB page, take two thirds of the time in pages of 2 MB,
// and passes from end to end lose a tenth.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = 2 * kHugePage;  // smaller arrays would waste too much of a page

std::align_val_t alignment_of(size_t size) {
  return std::align_val_t{size >= kHugeFrom ? kHugePage : kCacheLine};
}

}  // namespace

void* allocate_aligned(size_t size) {
  void* memory = ::operator new(size, alignment_of(size));
#ifdef __linux__
  // Advice: where it is refused the pages stay small.
  if (size >= kHugeFrom) madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

void free_aligned(void* memory, size_t size) noexcept {
  ::operator delete(memory, alignment_of(size));
}

}  // namespace thinwire
