// One use of a stream, as the package hands it over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

#include "thinwire/codec.h"

namespace thinwire::python {

using CallTuple = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;  // seed step salt ranks

inline Call make_call(const CallTuple& call) {
  const auto& [seed, step, salt, ranks] = call;
  Call made;
  made.seed = seed;
  made.step = step;
  made.salt = salt;
  made.ranks = ranks;
  return made;
}

}  // namespace thinwire::python
