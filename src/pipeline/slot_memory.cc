// SlotMemory: allocates slots in segments of some megabytes, so that growing moves nothing.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/slot_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr size_t kSegment = size_t{4} << 20;  // bytes, unless a slot is larger
constexpr size_t kPage = size_t{1} << 16;     // what offsets in the file are a multiple of

size_t slots_per_segment(size_t slot_size, size_t budget) {
  const size_t segment = budget > 0 ? std::min(kSegment, budget) : kSegment;
  return std::max<size_t>(1, segment / slot_size);
}

[[noreturn]] void fail(ErrorCode code, const std::string& why) {
  throw Error(code, "boundary: estimates: " + why);
}

}  // namespace

SlotMemory::SlotMemory(size_t slot_size, size_t budget, std::string folder)
    : slot_size_(slot_size),
      per_segment_(slots_per_segment(slot_size, budget)),
      budget_(budget),
      folder_(std::move(folder)) {}

SlotMemory::~SlotMemory() {
  for (std::byte* place : mapped_) ::munmap(place, per_segment_ * slot_size_);
  if (file_ >= 0) ::close(file_);
}

void SlotMemory::grow(size_t slots) {
  const size_t segment = per_segment_ * slot_size_;
  while (places_.size() * per_segment_ < slots) {
    places_.reserve(places_.size() + 1);
    if (budget_ == 0 || (owned_.size() + 1) * segment <= budget_) {
      owned_.emplace_back(segment);
      places_.push_back(owned_.back().data());
    } else {
      places_.push_back(map_segment());
    }
  }
}

// Space is taken at once: a full disk is then an error here, and not a signal at a later write.
std::byte* SlotMemory::map_segment() {
  if (file_ < 0) open_file();
  const size_t segment = per_segment_ * slot_size_;
  const size_t step = (segment + kPage - 1) / kPage * kPage;
  const auto begin = static_cast<off_t>(mapped_.size() * step);
  if (const int error = ::posix_fallocate(file_, begin, static_cast<off_t>(step)); error != 0)
    fail(ErrorCode::kIo, "no room in '" + folder_ + "': " + std::strerror(error));
  mapped_.reserve(mapped_.size() + 1);
  void* place = ::mmap(nullptr, segment, PROT_READ | PROT_WRITE, MAP_SHARED, file_, begin);
  if (place == MAP_FAILED)
    fail(ErrorCode::kIo, "cannot map a file in '" + folder_ + "': " + std::strerror(errno));
  mapped_.push_back(static_cast<std::byte*>(place));
  return mapped_.back();
}

void SlotMemory::open_file() {
  if (folder_.empty())
    fail(ErrorCode::kBadOption, "they need more than their budget of " + std::to_string(budget_) +
                                    " bytes, and there is no folder to spill to");
  std::string name = folder_ + "/thinwire-estimates-XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0)
    fail(ErrorCode::kIo, "cannot make a file in '" + folder_ + "': " + std::strerror(errno));
  ::unlink(name.c_str());
}

}  // namespace thinwire
