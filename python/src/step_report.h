// Reports of steps as dictionaries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "option_rows.h"
#include "thinwire/exchange.h"

namespace thinwire::python {

// What the package makes a StepReport of; `streams` are those of the exchange.
Row report_row(const StepReport& report, const std::vector<StreamSpec>& streams);

}  // namespace thinwire::python
