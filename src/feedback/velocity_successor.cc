// Compares memories by what they would have tensors that are sent uncompressed do.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/velocity_successor.h"

#include <utility>

namespace thinwire {

bool succeeds_velocity(std::string_view memory, std::string_view before) {
  const auto [was, was_options] = find_feedback(before).value();
  const auto [is, is_options] = find_feedback(memory).value();
  return was->plain && is->plain && !was->owes && is->owes &&
         was->plain(was_options) == is->plain(is_options);
}

// `before` lacks what is zero.
void take_velocity(const Feedback& before, Feedback& memory) {
  StateArrays arrays = before.save();
  for (StateArray& own : memory.save())
    if (find_state(arrays, own.name) == nullptr) arrays.push_back(std::move(own));
  memory.load(arrays).or_throw();
}

}  // namespace thinwire
