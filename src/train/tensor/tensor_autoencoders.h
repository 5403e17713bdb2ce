// Learned compression of sums over tensor-parallel ranks [Bian et al., MLSys 2024,
// arXiv:2301.02654].
//
//   code_r = p_r E     p_r is a rank's partial product of d features, E is d x k
//   y = (sum of code_r) D + b     D is k x d
//
// E is linear, so the sum of codes is the code of the sum. Both matrices are parameters of the
// split layer that every rank has whole. The gradient of D has the same bits on all ranks; that of
// E is summed over ranks, uncompressed: 4 d k bytes a pair.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/options.h"
#include "thinwire/torch.h"

namespace thinwire {

// The task with an encoder and a decoder at every pair of the split layers that tensor.layers
// names, where the recipe asks for them; otherwise the task as it is. First weights as those of
// pipeline.autoencoder; layers that have these matrices keep them. Throws Error(kBadOption) for a
// code wider than the features.
Task with_tensor_autoencoders(const Options& recipe, Task task);

}  // namespace thinwire
