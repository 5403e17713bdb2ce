// SavedRanks: the states that the ranks of a run saved, and the share of each rank of another run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

// In a run without a hierarchy every old rank holds every array. In one with groups of g ranks an
// array is held by every rank, or by one rank of each group, at the same place; a marker among the
// arrays says g. What a group holds once counts as much as what a rank holds in a run without.
class SavedRanks {
 public:
  // `saved` outlives it; one state alone may be what a rank of a group saved for itself. Fails with
  // kCorrupt if a state is not what was saved, with kMismatch if the ranks contradict each other.
  static Result<SavedRanks> read(const std::vector<StateArrays>& saved);

  // What rank `rank` of `size` takes of each array, where groups of `inside` ranks are one:
  //   - that of the old group of the same number, if one rank of each old group holds the array,
  //     and there are as many groups now; in a run without a hierarchy each rank is a group;
  //   - its own, if every rank of an old group holds the array, and there are as many ranks now;
  //   - what OnResize makes of those of all that hold it, in all other cases.
  StateArrays share(int rank, int size, int inside) const;

 private:
  using Holders = std::vector<const StateArray*>;  // in the order of ranks

  size_t ranks_ = 0;
  size_t inside_ = 1;
  std::map<std::string_view, Holders> arrays_;
};

// The marker in a state of groups of `inside` ranks, and what it says: 1 without one, 0 if it makes
// no sense.
StateArray inside_marker(int inside);
int marked_inside(const StateArrays& arrays);

}  // namespace thinwire
