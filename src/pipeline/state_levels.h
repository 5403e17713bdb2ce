// Names of saved arrays in levels: "streams/3/memory/residual".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "thinwire/state.h"

namespace thinwire {

// Adds arrays below a level ("streams/"). An end stays where its neighbour is: nothing of it is
// owed to a mean over ranks, so that all are copied when their number changes.
inline void add_level(StateArrays from, std::string_view level, StateArrays& to) {
  for (StateArray& array : from) {
    array.name = std::string(level) + array.name;
    array.on_resize = OnResize::kCopy;
    to.push_back(std::move(array));
  }
}

// The arrays below a level, by the names they have there.
inline StateArrays take_level(const StateArrays& from, std::string_view level) {
  StateArrays below;
  for (const StateArray& array : from)
    if (array.name.starts_with(level)) {
      below.push_back(array);
      below.back().name.erase(0, level.size());
    }
  return below;
}

}  // namespace thinwire
