// The optimisers of libtorch, set up from a recipe and saved as named arrays.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <memory>

#include "thinwire/options.h"
#include "thinwire/state.h"

namespace thinwire {

// Over the module's trained parameters; two groups when biases and norm parameters do not decay.
// Epochs, in which optimizer.freeze_after is, have `steps_per_epoch` steps.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& recipe,
                                                        const torch::nn::Module& module,
                                                        uint64_t steps_per_epoch);

// w -= rate g for every parameter with a gradient g, of which SignSgd takes the sign, and which
// Adam and NovoGrad divide by what their second moments say; those and momenta stay as they are.
// With Adam w moves by kMostRates rates at most.
// Adam leaves parameters that it has not stepped yet.
void step_without_momentum(torch::optim::Optimizer& optimizer, double rate);

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

// What it remembers, as "<parameter>/momentum_buffer" and so on; nothing for parameters that it has
// not stepped yet.
StateArrays save_optimizer(const torch::optim::Optimizer& optimizer,
                           const torch::nn::Module& module);

// REQUIRES: a new optimiser. Fails, naming the array, when one does not fit.
Status load_optimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                      const StateArrays& arrays);

}  // namespace thinwire
