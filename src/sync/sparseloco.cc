// sparseloco: an outer step on the mean of what workers send of a decaying sum of their differences
// [SparseLoCo: Sarfi et al., arXiv 2508.15706].
//
//   every tau steps, on each worker:   e <- beta e + (a - x),   c = C(e),   e <- e - c
//   then on all:                       a <- a - rate (mean of c),   x <- a
//
// The memory is residual:beta=B; its decay is the outer momentum. e is kept when a round is skipped. With a
// lossless codec nothing is left in e, and at rate 1 this is `average`.
// SPDX-License-Identifier: Apache-2.0
#include "sync/outer_sgd.h"

namespace thinwire {
namespace {

std::string decaying_memory(const Options& rule, const SynchroniserOptions& /*options*/) {
  return "residual:beta=" + rule.canonical("beta");
}

}  // namespace

const SyncRuleEntry& sparseloco_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "sparseloco",
               .summary =
                   "an outer step on what sparse codecs send of a decaying sum of differences",
               .paper = "Sarfi et al., 2025",
               .options = {period_row("30"),
                           {.name = "rate",
                            .type = OptionType::kNumber,
                            .fallback = "1",
                            .min = 0,
                            .max = 10,
                            .help = "learning rate of the outer step"},
                           {.name = "beta",
                            .type = OptionType::kNumber,
                            .fallback = "0.95",
                            .min = 0,
                            .max = 1,
                            .help = "share of what is owed that is left after a round"}}},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            return std::make_unique<OuterSgd>(
                setup, "sparseloco", static_cast<uint64_t>(options.integer("tau")),
                OuterStep{.rate = static_cast<float>(options.number("rate"))},
                decaying_memory(options, setup.options));
          },
      .memory = decaying_memory};
  return entry;
}

}  // namespace thinwire
