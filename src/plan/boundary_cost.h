// BoundaryCost: the size of a boundary's messages and the time to code them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/boundary.h"
#include "thinwire/step_plan.h"

namespace thinwire {

struct BoundaryCost {
  double message_bytes = 0;  // of one micro-batch
  double encode_seconds = 0;
  double decode_seconds = 0;
  double sender_memory_bytes = 0;
  double receiver_memory_bytes = 0;
  bool exact = true;  // the bytes that messages have
};

// Laid out by the plan that both ends are made from. With estimates, of samples that were seen
// before. `noted` are values per sample that the other direction keeps, where only those are sent;
// else it is 0. The estimates of `aqsgd` grow with the data set, whose size is not known here: the
// memory has the values of one step of them.
Result<BoundaryCost> boundary_cost(const BoundarySpec& spec, double noted, CostTable& costs);

}  // namespace thinwire
