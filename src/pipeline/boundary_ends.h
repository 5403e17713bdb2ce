// The kinds of ends that a BoundarySpec can ask for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pipeline/boundary_plan.h"

namespace thinwire {

// Whole tensors, with or without memory.
std::unique_ptr<BoundarySender> make_sender(BoundaryPlan plan);
std::unique_ptr<BoundaryReceiver> make_receiver(BoundaryPlan plan);

// Values at the positions of plan.spec.at_positions.
std::unique_ptr<BoundarySender> make_positioned_sender(BoundaryPlan plan);
std::unique_ptr<BoundaryReceiver> make_positioned_receiver(BoundaryPlan plan);

}  // namespace thinwire
