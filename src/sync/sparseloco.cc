// sparseloco: an outer step on the mean of what workers send of a decaying sum of their differences
// [SparseLoCo: Sarfi et al., arXiv 2508.15706].
//
//   every tau steps, on each worker:   e <- beta e + (a - x),   c = C(e),   e <- e - c
//   then on all:                       a <- a - rate (mean of c),   x <- a
//
// The memory is residual:beta=B; its decay is the outer momentum. e is kept when a round is
// skipped. With a lossless codec nothing is left in e, and at rate 1 this is `average`.
// SPDX-License-Identifier: Apache-2.0
#include "sync/outer_sgd.h"
#include "thinwire/feedback.h"

namespace thinwire {
namespace {

// A memory that the caller names takes the place of e. Then beta says nothing, and a memory that
// drops what was not sent, or keeps something else, leaves the method without what it is named for.
void check_named_memory(const SynchroniserOptions& options) {
  if (options.feedback == "auto") return;
  const SpecText method = parse_spec("synchroniser", options.method).value();
  const std::string origin = "synchroniser 'sparseloco': ";
  for (const auto& [key, value] : method.settings)
    if (key == "beta")
      throw Error(ErrorCode::kBadOption,
                  origin + "beta=" + value + " in the method is that of the memory residual:beta=" +
                      value + ", and feedback (exchange.feedback) names '" + options.feedback +
                      "' in its place; leave feedback at auto, or leave beta out of the method and "
                      "name it there, as in residual:beta=" +
                      value);
  const NamedFeedback memory = find_feedback(options.feedback).value();
  if (memory.entry->owes || is_lossless(options.codec)) return;
  std::string known;
  for (const FeedbackEntry* entry : list_feedbacks())
    if (entry->owes) known += ", " + std::string(entry->name);
  throw Error(ErrorCode::kBadOption,
              origin + "feedback '" + options.feedback +
                  "' (exchange.feedback) does not keep what a round leaves out, which is the "
                  "momentum of this method; choose auto" +
                  known + "; or diloco:momentum=0, which takes the same step without it");
}

std::string decaying_memory(const Options& rule, const SynchroniserOptions& options) {
  check_named_memory(options);
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
