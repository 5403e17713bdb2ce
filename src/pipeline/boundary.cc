// Makes the sending or receiving end of a boundary from its spec.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/boundary.h"

#include "pipeline/boundary_ends.h"
#include "pipeline/kept_positions.h"

namespace thinwire {

std::shared_ptr<KeptPositions> make_kept_positions() { return std::make_shared<KeptPositions>(); }

namespace {

void prepare(const BoundarySpec& spec) {
  if (spec.note_positions) spec.note_positions->prepare(spec.micro_batches);
  if (spec.at_positions) spec.at_positions->prepare(spec.micro_batches);
}

}  // namespace

Result<std::unique_ptr<BoundarySender>> make_boundary_sender(const BoundarySpec& spec) {
  Result<BoundaryPlan> plan = plan_boundary(spec);
  if (!plan) return plan.status();
  prepare(spec);
  return spec.at_positions ? make_positioned_sender(std::move(plan).value())
                           : make_sender(std::move(plan).value());
}

Result<std::unique_ptr<BoundaryReceiver>> make_boundary_receiver(const BoundarySpec& spec) {
  Result<BoundaryPlan> plan = plan_boundary(spec);
  if (!plan) return plan.status();
  prepare(spec);
  return spec.at_positions ? make_positioned_receiver(std::move(plan).value())
                           : make_receiver(std::move(plan).value());
}

}  // namespace thinwire
