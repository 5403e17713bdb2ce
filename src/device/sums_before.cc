// Segments one by one, then segments of their totals.
// SPDX-License-Identifier: Apache-2.0
#include "device/sums_before.h"

#include "device/work_grid.h"

namespace thinwire::device {

void sum_before(Launcher& on, uint64_t* numbers, uint64_t count, uint64_t* total) {
  const uint64_t segments = (count + kSumSegment - 1) / kSumSegment;
  if (segments == 0)
    return launch(on, "selection/fill_words", kOneBlock, total, uint64_t{2}, uint32_t{0});
  if (segments == 1) return launch(on, "selection/sum_before", kOneBlock, numbers, count, total);
  uint64_t* const totals = numbers + count;
  launch(on, "selection/sum_before", block_grid(segments), numbers, count, totals);
  sum_before(on, totals, segments, total);
  launch(on, "selection/add_segments", work_grid(count), numbers, count,
         static_cast<const uint64_t*>(totals));
}

}  // namespace thinwire::device
