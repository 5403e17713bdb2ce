// The table of leader's options, and the checks of contradictions between them.
// SPDX-License-Identifier: Apache-2.0
#include "sync/leader_rule.h"

#include "sync/sync_rules.h"

namespace thinwire {
namespace {

OptionInfo strength_row(std::string_view name, std::string_view fallback, std::string_view help) {
  return {.name = name,
          .type = OptionType::kNumber,
          .fallback = fallback,
          .min = 0,
          .max = 1,
          .unit = "fraction",
          .help = help};
}

// Who misses a round misses what it did to a reference.
void check_patience(const LeaderRule& rule, const SyncSetup& setup) {
  if (rule.patience.count() == 0) return;
  if (!is_lossless(setup.options.codec))
    throw Error(ErrorCode::kUnsupported,
                "synchroniser 'leader': workers that may be left behind "
                "need a lossless codec, not '" +
                    setup.options.codec + "'");
}

}  // namespace

std::vector<OptionInfo> leader_options() {
  return {
      period_row("64"),
      {.name = "tau_global",
       .type = OptionType::kInteger,
       .fallback = "128",
       .min = 1,
       .max = 0x1p53,
       .unit = "steps",
       .help = "between two pulls to the best of all; a multiple of tau"},
      strength_row("pull", "0.1", "to the best of the group (lambda)"),
      strength_row("pull_global", "0.1", "to the best of all (lambda_G)"),
      strength_row("prox", "0", "to the group's last leader, over the steps of a tau"),
      strength_row("prox_global", "0", "to the last leader of all, over the steps of a tau_global"),
      {.name = "groups",
       .type = OptionType::kInteger,
       .fallback = "0",
       .min = 0,
       .max = 65534,
       .help = "of neighbouring ranks; 0: one for each host"},
      {.name = "window",
       .type = OptionType::kInteger,
       .fallback = "10",
       .min = 1,
       .max = 1e6,
       .unit = "losses",
       .help = "whose mean judges a worker"},
      {.name = "asynchronous",
       .type = OptionType::kFlag,
       .fallback = "false",
       .help = "rounds by the sum of all workers' steps"},
      {.name = "patience",
       .type = OptionType::kNumber,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .unit = "seconds",
       .help = "until a round goes on without the late; 0: it waits"}};
}

LeaderRule read_leader_rule(const Options& options) {
  const LeaderRule rule{.tau = static_cast<uint64_t>(options.integer("tau")),
                        .tau_global = static_cast<uint64_t>(options.integer("tau_global")),
                        .pull = static_cast<float>(options.number("pull")),
                        .pull_global = static_cast<float>(options.number("pull_global")),
                        .prox = static_cast<float>(options.number("prox")),
                        .prox_global = static_cast<float>(options.number("prox_global")),
                        .groups = static_cast<int>(options.integer("groups")),
                        .window = static_cast<size_t>(options.integer("window")),
                        .asynchronous = options.flag("asynchronous"),
                        .patience = std::chrono::milliseconds(
                            static_cast<int64_t>(options.number("patience") * 1000))};
  if (rule.tau_global % rule.tau != 0)
    throw Error(ErrorCode::kBadOption,
                "synchroniser 'leader': tau_global must be a multiple of tau, but is " +
                    std::to_string(rule.tau_global) + " at a tau of " + std::to_string(rule.tau));
  if (options.number("patience") > 0 && rule.patience.count() == 0)
    throw Error(ErrorCode::kBadOption,
                "synchroniser 'leader': patience is " + options.canonical("patience") +
                    " seconds; choose 0, which waits for all, or 0.001 or more");
  if (rule.patience.count() > 0 && !rule.asynchronous)
    throw Error(ErrorCode::kBadOption,
                "synchroniser 'leader': patience is for asynchronous workers");
  return rule;
}

LeaderRule make_leader_rule(const Options& options, const SyncSetup& setup) {
  const LeaderRule rule = read_leader_rule(options);
  if (rule.groups > setup.group.size())
    throw Error(ErrorCode::kBadOption, "synchroniser 'leader': " + std::to_string(rule.groups) +
                                           " groups among " + std::to_string(setup.group.size()) +
                                           " ranks");
  check_patience(rule, setup);
  return rule;
}

}  // namespace thinwire
