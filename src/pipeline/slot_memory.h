// SlotMemory: many slots of one size, in memory up to a budget and beyond it in a mapped file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/aligned.h"

namespace thinwire {

// Slots stay where they were made: samples are visited once an epoch in random order, so that no
// choice of which to keep in memory would find more of them there. The system's page cache does
// what can be done. The file has no name and is gone with the process.
class SlotMemory {
 public:
  // Sizes in bytes; a budget of 0 is none. REQUIRES: slot_size > 0.
  SlotMemory(size_t slot_size, size_t budget, std::string folder);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  // Makes room for at least so many slots. Throws Error(kIo) where the file cannot have the space,
  // Error(kBadOption) where there is no folder for it.
  void grow(size_t slots);

  // REQUIRES: grow made room for it.
  std::span<std::byte> at(size_t slot) noexcept { return {place(slot), slot_size_}; }
  std::span<const std::byte> at(size_t slot) const noexcept { return {place(slot), slot_size_}; }

 private:
  std::byte* place(size_t slot) const noexcept {
    return places_[slot / per_segment_] + slot % per_segment_ * slot_size_;
  }
  std::byte* map_segment();
  void open_file();

  size_t slot_size_;
  size_t per_segment_;
  size_t budget_;
  std::string folder_;
  std::vector<std::byte*> places_;  // of all segments: those in memory first
  std::vector<AlignedVector<std::byte>> owned_;
  std::vector<std::byte*> mapped_;
  int file_ = -1;
};

}  // namespace thinwire
