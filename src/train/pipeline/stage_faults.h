// Lets a pipeline's ranks agree at the end of a step, so that all skip it or none does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "train/pipeline/pipeline_step.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// Where the first value that is not finite came from, among all ranks; nothing where there is none.
// Called by all ranks with what each of them saw itself.
std::optional<Fault> find_spoiled_stage(Group& group, const StagePlan& plan, const Spoiled& mine);

// The ranks of one stage may have skipped an exchange that those of another stage did not skip: a
// frame was corrupt, or a sum overflowed (in a memory it can even with one pipeline). Then the
// reports of all ranks say skipped, and name the first such rank.
void agree_on_exchange(Group& group, const StagePlan& plan, StepReport& report);

}  // namespace thinwire
