// Sums of the numbers before each, on a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/launcher.h"

namespace thinwire::device {

// Numbers that one block of threads sums.
inline constexpr size_t kSumSegment = 2048;

// Entries that sum_before takes for so many numbers.
constexpr size_t sum_room(size_t count) noexcept {
  const size_t segments = (count + kSumSegment - 1) / kSumSegment;
  return segments > 1 ? count + sum_room(segments) : count;
}

// Each number becomes the sum of those before it, and *total that of all. Overwrites what is behind
// the numbers, up to sum_room(count) entries. Queued.
void sum_before(Launcher& on, uint64_t* numbers, uint64_t count, uint64_t* total);

}  // namespace thinwire::device
