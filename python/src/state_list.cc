// Converts saved arrays to and from Python.
// SPDX-License-Identifier: Apache-2.0
#include "state_list.h"

#include <cstring>

namespace nb = nanobind;

namespace thinwire::python {

StateList to_list(const StateArrays& arrays) {
  StateList list;
  for (const StateArray& array : arrays)
    list.emplace_back(array.name, static_cast<int>(array.type), static_cast<int>(array.on_resize),
                      array.shape, nb::bytes(array.data.data(), array.data.size()));
  return list;
}

StateArrays from_list(const StateList& list) {
  StateArrays arrays;
  for (const auto& [name, type, on_resize, shape, bytes] : list) {
    StateArray array{.name = name,
                     .type = static_cast<StateType>(type),
                     .shape = shape,
                     .on_resize = static_cast<OnResize>(on_resize),
                     .data = std::vector<std::byte>(bytes.size())};
    if (bytes.size() > 0) std::memcpy(array.data.data(), bytes.c_str(), bytes.size());
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace thinwire::python
