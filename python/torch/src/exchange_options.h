// Converts the options of exchanges between Python's dictionaries and C++.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "thinwire/exchange.h"

namespace thinwire::python {

// All that `compress` takes, and "rules": a list of dictionaries with pattern, codec, feedback,
// method and grouping. A grouping of "auto" is an absent one.
ExchangeOptions exchange_options_of(const pybind11::dict& given);

// What Exchange::change changes: codec, feedback, method, grouping, rules, steps_per_epoch.
pybind11::dict dict_of(const ExchangeOptions& options);

}  // namespace thinwire::python
