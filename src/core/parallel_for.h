// Runs parts of a large vector on several threads; thinwire/threads.h sets their number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "thinwire/threads.h"

namespace thinwire {

// Below this waking a thread costs more than it saves: 512 KB are a few tens of microseconds.
inline constexpr size_t kLeastPerThread = size_t{1} << 17;  // values
inline constexpr size_t kLeastParallel = 4 * kLeastPerThread;

// Calls call(context, i) for every i below `parts`, on this thread and others, and returns when all
// are done. Calls must not throw.
void run_parts(size_t parts, void (*call)(void* context, size_t part), void* context) noexcept;

// Calls body(begin, end) for ranges that together are 0 to count, each but the last of a multiple
// of `unit` values. What body does must not depend on how they are cut, and must not throw.
template <class Body>
void parallel_for(size_t count, size_t unit, const Body& body) noexcept {
  const auto threads = static_cast<size_t>(codec_threads());
  if (threads <= 1 || count < kLeastParallel || unit >= count) {
    if (count > 0) body(size_t{0}, count);
    return;
  }
  // Several for each thread, so that one that is interrupted does not keep the others waiting.
  const size_t wanted = std::max((count - 1) / (4 * threads) + 1, kLeastPerThread);
  struct Cut {
    const Body& body;
    size_t count, size;
  } cut{body, count, (wanted - 1) / unit * unit + unit};
  run_parts((count - 1) / cut.size + 1,
            [](void* context, size_t part) {
              const Cut& all = *static_cast<const Cut*>(context);
              const size_t begin = part * all.size;
              all.body(begin, std::min(begin + all.size, all.count));
            },
            &cut);
}

}  // namespace thinwire
