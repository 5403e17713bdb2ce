// Tables of options as lists of dictionaries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <vector>

#include "thinwire/options.h"

namespace thinwire::python {

// A record that the package makes a dataclass of.
using Row = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

// nb::str from a view that need not end in a zero.
nanobind::str to_str(std::string_view text);

// One dictionary per row; `default` is still text, unbounded ends are None.
nanobind::list option_rows(const std::vector<OptionInfo>& table);

}  // namespace thinwire::python
