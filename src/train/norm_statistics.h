// Measures batch norm's running statistics again, for weights to which they do not belong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "thinwire/torch.h"
#include "train/own_buffers.h"

namespace thinwire {

// Sets the mean and variance of every batch norm of the task's module to their means over batches
// of `batch` training samples, not augmented, about `samples` in all: the first ones, as many for
// every rank, and at least one batch for each. The same bits on every rank. A module without batch
// norm stays as it is. Called by all ranks.
void measure_norms(Group& group, const Task& task, const Dataset& data, uint64_t samples,
                   uint64_t batch, OwnBuffers& buffers);

}  // namespace thinwire
