// downpour: workers add their changes to the centre and go on from it [Dean et al., NIPS 2012].
// All n of them do so at the same time:
//
//   every tau steps:   c <- c + sum of all (x_i - c),   x_i <- c
//
// The sum, not the mean: n workers go n times as far, and want a learning rate that is smaller so
// many times. At tau = 1 it is SGD on the sum of the workers' gradients.
// SPDX-License-Identifier: Apache-2.0
#include "sync/outer_sgd.h"

namespace thinwire {

const SyncRuleEntry& downpour_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "downpour",
               .summary = "all workers' steps are added to the centre",
               .paper = "Dean et al., NIPS 2012",
               .options = {period_row("1")}},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            const OuterStep sum{.rate = static_cast<float>(setup.group.size()), .momentum = 0};
            return std::make_unique<OuterSgd>(setup, "downpour",
                                              static_cast<uint64_t>(options.integer("tau")), sum);
          },
      .memory = residual_memory};
  return entry;
}

}  // namespace thinwire
