// What crossed boundaries, in a step's report: a boundary has a stream for each direction.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/trainer.h"

namespace thinwire {

// Values of one sample.
uint64_t count_of(const std::vector<uint64_t>& shape);

// Puts both directions of each boundary in front of the exchange's streams in `report`, or in
// their place if there was no exchange.
void report_boundaries(const PipelineReport& from, bool with_exchange, StepReport& report);

}  // namespace thinwire
