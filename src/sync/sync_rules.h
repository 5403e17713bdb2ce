// The built-in rules: one row each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sync/sync_rule.h"

namespace thinwire {

struct SyncRuleEntry {
  SynchroniserInfo info;
  std::function<std::unique_ptr<SyncRule>(const Options&, const SyncSetup&)> make;
  // Fails for options that do not go together, whatever ranks and weights are; absent: all do.
  Status (*check)(const Options& rule) = nullptr;
  bool scheduled = true;  // the codec may follow a schedule: an exchange carries what is sent
  bool momentum = false;  // on what is sent: SynchroniserOptions::momentum has a meaning
  bool lossless = false;  // the codec must be: peers change, so that a difference refers to nothing
  // Of rules whose rounds are means: the memory of lossy codecs, unless the caller names one. Absent:
  // callers name neither a memory nor a collective.
  std::string (*memory)(const Options& rule, const SynchroniserOptions& options) = nullptr;
};

const SyncRuleEntry& average_entry();
const SyncRuleEntry& easgd_entry();
const SyncRuleEntry& leader_entry();
const SyncRuleEntry& diloco_entry();
const SyncRuleEntry& sparseloco_entry();
const SyncRuleEntry& streaming_entry();
const SyncRuleEntry& downpour_entry();
const SyncRuleEntry& parle_entry();
const SyncRuleEntry& gossip_entry();

// What is left of a difference waits for the next round; or an estimate of parameters is followed.
inline std::string residual_memory(const Options& /*rule*/,
                                   const SynchroniserOptions& /*options*/) {
  return "residual";
}
inline std::string ef21_memory(const Options& /*rule*/, const SynchroniserOptions& /*options*/) {
  return "ef21";
}

// Rows that several rules have.
inline OptionInfo period_row(std::string_view fallback) {
  return {.name = "tau",
          .type = OptionType::kInteger,
          .fallback = fallback,
          .min = 1,
          .max = 0x1p53,
          .unit = "steps",
          .help = "local steps between two communications"};
}

}  // namespace thinwire
