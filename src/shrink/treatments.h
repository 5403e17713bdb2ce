// What may become of a group of values, from exact to small, and the search for the smallest that a
// network bears.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "shrink/clusters.h"

namespace thinwire {

// From all values as they are, by fewer bits and a larger share that is pruned, to one bit and 95 %
// pruned.
std::span<const Treatment> treatments();

// For each group the number of its treatment.
using Setting = std::vector<size_t>;

struct SettingSearch {
  std::vector<uint64_t> sizes;  // values of each group
  size_t treatments = 0;        // how many there are; 0 always fits
  int trials = 0;               // at most so many settings are tried
  Setting start = {};           // that fitted before; empty: none
  bool start_fails = false;     // it was measured, and does not fit any more
};

struct FoundSetting {
  Setting setting;
  int trials = 0;
};

// Looks for a small setting that fits. From `start` it steps back until one fits (without measuring
// a start that fails), by 1, 2, 4 and so on for all groups; without a start it bisects for a
// treatment that all groups have in common. Then it tries a smaller treatment for one group after
// another, the largest first, while settings fit: by four, by two, by one. (After a start: by one.)
// The setting that it returns fitted when it was tried, or is all zeros. `fits` may decide by
// measurement; it is asked with the same settings on every rank if it answers alike.
FoundSetting find_setting(const SettingSearch& search,
                          const std::function<bool(const Setting&)>& fits);

}  // namespace thinwire
