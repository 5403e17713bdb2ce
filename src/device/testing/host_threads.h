// The threads of a kernel's block, on one thread of the processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace thinwire::device {

struct HostIndex {
  uint32_t x = 0;
};

// Where the thread stands that runs now.
struct HostPlace {
  HostIndex thread, block, threads, blocks;
};
const HostPlace& host_place() noexcept;

// Runs `body` as every thread of every block, block by block. Threads of a block take turns: a
// thread runs until it ends or meets others. With `backward` the last thread comes first: results
// that change with the order show a meeting that is missing. REQUIRES: threads a multiple of 32.
// Ends the program if threads wait for each other in vain.
void run_on_host(uint32_t blocks, uint32_t threads, bool backward,
                 const std::function<void()>& body);

enum class Meeting : uint8_t { kNone, kBlock, kWarp };

// Goes on once all threads of the block, or of the warp, that have not ended are here.
void host_meet(Meeting meeting);

template <class T>
using WarpValues = std::array<T, 32>;

// The room of each lane of this warp for what it shares.
std::array<uint64_t, 32>& host_room() noexcept;

// What the lanes of this warp give.
template <class T>
WarpValues<T> host_share(T mine) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  host_meet(Meeting::kWarp);  // all have read what was shared before
  std::memcpy(&host_room()[host_place().thread.x % 32], &mine, sizeof mine);
  host_meet(Meeting::kWarp);
  WarpValues<T> values;
  for (size_t lane = 0; lane < 32; ++lane)
    std::memcpy(&values[lane], &host_room()[lane], sizeof(T));
  return values;
}

}  // namespace thinwire::device
