// A whole network with the codecs of its tensor-parallel sums in it, on one rank, to test it with
// compression on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "thinwire/torch.h"
#include "train/tensor/rank_parts.h"
#include "train/tensor/tensor_options.h"
#include "train/tensor/trained_sums.h"

namespace thinwire {

// The task's forward pass in which every sum over ranks is made of what each rank's part arrives
// as, without memory: test samples have no history. With the codecs of `step.first_step`, for
// batches of at most `step.samples`. Not for several threads.
Task summed_task(const TensorParallelOptions& options, const TensorPlan& plan, const Task& task,
                 const std::vector<SumShapes>& shapes, const StepShape& step);

}  // namespace thinwire
