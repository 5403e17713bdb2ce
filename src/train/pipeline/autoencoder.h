// Learned compression at the cuts of a pipeline [Bian et al., MLSys 2024, arXiv:2301.02654]: a
// linear encoder behind the last layer of a stage, and a linear decoder in front of the first layer
// of the next.
//
//   code = x E     x has d features, E is d x k     on the sending stage
//   x'   = code D  D is k x d                       on the receiving stage
//
// Both are parameters of the network, in the modules of the two layers: `LAYER.encoder.weight` is
// the transpose of E (k x d), `LAYER.decoder.weight` that of D (d x k). So they get gradients from
// autograd, steps from the optimiser and places in checkpoints as all weights do, and the boundary
// between them compresses the code as it does any activation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/torch.h"
#include "train/pipeline/pipeline_options.h"

namespace thinwire {

// Values of the code of `features` features, as one part of pipeline.autoencoder says: "32"; "4x",
// a quarter of the features, rounded up; or "none", which gives 0. Fails with kBadOption for other
// texts and for a code without values or with more than there are features.
Result<uint64_t> code_width(std::string_view text, uint64_t features);

// `count` rows of `length` values each, orthonormal: a pure function of the key. REQUIRES: count <=
// length.
torch::Tensor orthonormal_rows(int64_t count, int64_t length, const RandomKey& key);

// What is wrong with pipeline.autoencoder, as far as that can be said without the network:
// kBadOption.
Status check_autoencoders(const PipelineOptions& options);

// The task with an encoder and a decoder at every cut of the recipe that is to have them; otherwise
// the task as it is. Its forward is then that of its layers. The layers' modules get the weights, a
// pure function of train.seed; a task that has them already, from a run before, keeps them. The
// first samples of `data` pass through all layers. Throws Error as check_autoencoders and
// cut_stages do, and kBadOption for a code wider than its features and for layers with such modules
// of their own.
Task with_autoencoders(const Options& recipe, Task task, const Dataset& data);

// The shape of a sample in front of the encoder at cut number `cut`, where what crosses has the
// shape `crossing` and `last` is the layer with the encoder. Without one: `crossing`.
std::vector<uint64_t> shape_before_encoder(const PipelineOptions& options, size_t cut,
                                           const Layer& last, std::vector<uint64_t> crossing);

}  // namespace thinwire
