// Multiplies what is owed to the mean, so that it stays what it is if the number of ranks changes.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/follows_ranks.h"

#include <cstring>

namespace thinwire {
namespace {

template <typename T>
void multiply(std::vector<std::byte>& data, double factor) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, data.data() + at, sizeof value);
    value = static_cast<T>(value * factor);
    std::memcpy(data.data() + at, &value, sizeof value);
  }
}

}  // namespace

void follow_ranks(Stateful& object, size_t before, size_t now) {
  if (auto* const follower = dynamic_cast<FollowsRanks*>(&object)) {
    follower->follow_ranks(before, now);
    return;
  }
  if (before == 0 || before == now) return;
  const double factor = static_cast<double>(now) / static_cast<double>(before);
  StateArrays arrays = object.save();
  bool owes = false;
  for (StateArray& array : arrays) {
    if (array.on_resize != OnResize::kOwedToMean) continue;
    owes = true;
    if (array.type == StateType::kFloat32)
      multiply<float>(array.data, factor);
    else
      multiply<double>(array.data, factor);
  }
  if (owes) object.load(arrays).or_throw();
}

}  // namespace thinwire
