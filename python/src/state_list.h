// state.h: saved arrays as tuples; the package writes and reads the file format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "thinwire/state.h"

namespace thinwire::python {

// Name, StateType and OnResize as numbers, shape, data.
using StateTuple = std::tuple<std::string, int, int, std::vector<uint64_t>, nanobind::bytes>;
using StateList = std::vector<StateTuple>;

StateList to_list(const StateArrays& arrays);
StateArrays from_list(const StateList& list);

}  // namespace thinwire::python
