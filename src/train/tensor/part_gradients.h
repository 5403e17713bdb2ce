// The gradients of one tensor-parallel rank, between the backward passes and the optimiser's step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "thinwire/group.h"
#include "train/tensor/rank_parts.h"

namespace thinwire {

// Weights that all ranks have and of whose gradients each has a part (encoders): these become sums,
// added in the order of ranks, uncompressed. Returns the bytes that this rank sent. Called by all
// ranks of the network.
uint64_t sum_partial_gradients(const RankParts& parts, Group& ranks);

// Clips the gradients of all parts by the norm of the whole network's. Called by all ranks of the
// network.
void clip_gradients(const RankParts& parts, Group& ranks, double limit);

}  // namespace thinwire
