// near_miss.h: what an error about an unknown name ends with.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "thinwire/near_miss.h"

namespace nb = nanobind;

namespace thinwire::python {

void bind_near_miss(nb::module_& module) {
  module.def(
      "did_you_mean",
      [](const std::string& typed, const std::vector<std::string>& names) {
        return did_you_mean(typed, names);
      },
      nb::arg("typed"), nb::arg("names"));
  module.def(
      "known_names",
      [](const std::string& typed, const std::vector<std::string>& names) {
        return known_names(typed, names);
      },
      nb::arg("typed"), nb::arg("names"));
}

}  // namespace thinwire::python
