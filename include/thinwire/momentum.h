// Decides where the momentum of an SGD optimiser acts: on each rank's gradient before it is
// compressed, or on the mean that arrives. docs/memories.md, Momentum.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "thinwire/status.h"
#include "thinwire/tensor_rule.h"

namespace thinwire {

struct ExchangeOptions;

// The momentum of torch.optim.SGD: u <- momentum u + (1 - dampening) g, where the first u is the
// first g. The step is along u, or along g + momentum u with Nesterov's form. A momentum of 0 is
// plain SGD, whatever the dampening.
struct Momentum {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;

  bool operator==(const Momentum&) const = default;
};

struct MomentumPlan {
  bool in_memory = false;  // the optimiser adds none to the mean; weight decay has its own
  std::string feedback;    // for ExchangeOptions
  std::vector<TensorRule> rules = {};  // for ExchangeOptions, with the memory of each
};

// Decides for an optimiser that would have the momentum `own`. `place` is
//
//   "optimizer"  on the mean
//   "memory"     in the memory, whatever the codec
//   "auto"       in the memory, if the codec leaves most values to a residual in every step and no
//                other memory is named; otherwise on the mean
//
// The optimiser has one momentum for all tensors. So with rules it is in all memories if "auto"
// puts it into that of one of them.
//
// Fails if momentum would act twice, if the memory that `options` name cannot hold it, and as
// check_exchange does. `usual` is the memory that "auto" means if it is not the codec's default.
Result<MomentumPlan> place_momentum(std::string_view place, const Momentum& own,
                                    const ExchangeOptions& options,
                                    std::string_view usual = "auto");

// Checks an optimiser of any kind whose momentum of `own` acts on the mean. Fails if momentum would
// act twice: a memory, which `options` name or which is a codec's default, has a momentum above 0,
// and `own` is not 0.
Status check_momentum_acts_once(double own, const ExchangeOptions& options);

// Decides for optimisers of Adam's kind whether the first moment acts on what arrives. What waited
// in a memory is late already, and the first moment would spread it over further steps
// (docs/memories.md, Adam). `place` is
//
//   "optimizer"  yes
//   "auto"       no, if the codec of any tensor leaves most values to a residual in every step and
//                no memory is named for it; otherwise yes
//
// Fails for other places, "memory" among them, and as check_momentum_acts_once does where a first
// moment of `beta1` acts.
Result<bool> first_moment_acts(std::string_view place, double beta1,
                               const ExchangeOptions& options);

}  // namespace thinwire
