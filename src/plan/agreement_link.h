// The link over which all ranks agree: that inside a machine if all are on one, else the one
// between machines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/step_plan.h"

namespace thinwire {

inline const LinkSpec& agreement_link(const PlanRequest& request) {
  return request.per_machine == request.ranks ? request.inside : request.link;
}

}  // namespace thinwire
