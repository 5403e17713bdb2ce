// The gradients of one stage's weights, between the backward passes and the optimiser's step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include "thinwire/group.h"

namespace thinwire {

// Clips the gradients of all stages of a pipeline by the norm of all of them together, in the
// operations of torch's clip_grad_norm_. Called by all ranks of `pipeline`, each with its own
// stage.
void clip_gradients(torch::nn::Module& stage, Group& pipeline, double limit);

}  // namespace thinwire
