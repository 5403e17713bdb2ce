// A whole network with its pipeline's codecs at the cuts, to evaluate it with compression
// on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/torch.h"
#include "train/pipeline/pipeline_options.h"
#include "train/pipeline/stage_plan.h"

namespace thinwire {

// The task's forward pass with each activation through its boundary's codec, without memory: test
// samples have no history. With the codecs of `step`. For batches of at most `samples`. `plan` must
// outlive it; not for several threads.
Task compressed_task(const PipelineOptions& options, const StagePlan& plan, const Task& task,
                     uint64_t samples, uint64_t step, uint64_t steps_per_epoch);

}  // namespace thinwire
