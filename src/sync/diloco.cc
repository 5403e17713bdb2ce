// diloco: an outer Nesterov step on how far the mean of all workers went [DiLoCo: Douillard et al.,
// arXiv 2311.08105].
//
//   every tau steps:   g = a - mean of all x,   v <- momentum v + g,
//                      a <- a - rate (g + momentum v),   x <- a
//
// Where v is in the memory each worker has its own, of its own a - x. One worker takes outer steps
// too. At rate 1 without momentum it is `average`.
// SPDX-License-Identifier: Apache-2.0
#include "sync/outer_sgd.h"

namespace thinwire {

const SyncRuleEntry& diloco_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "diloco",
               .summary = "an outer Nesterov step on how far all workers went",
               .paper = "Douillard et al., 2023",
               .options = {period_row("500"),
                           {.name = "rate",
                            .type = OptionType::kNumber,
                            .fallback = "0.7",
                            .min = 0,
                            .max = 10,
                            .help = "learning rate of the outer step"},
                           {.name = "momentum",
                            .type = OptionType::kNumber,
                            .fallback = "0.9",
                            .min = 0,
                            .max = 0.9999,
                            .help = "of the outer step, Nesterov's"}}},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            const OuterStep outer{.rate = static_cast<float>(options.number("rate")),
                                  .momentum = static_cast<float>(options.number("momentum"))};
            return std::make_unique<OuterSgd>(setup, "diloco",
                                              static_cast<uint64_t>(options.integer("tau")), outer);
          },
      .momentum = true,
      .memory =
          [](const Options& rule, const SynchroniserOptions& options) {
            return outer_memory(options, {.momentum = static_cast<float>(rule.number("momentum"))});
          }};
  return entry;
}

}  // namespace thinwire
