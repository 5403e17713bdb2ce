// The built-in rules: one row each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "sync/sync_rule.h"

namespace thinwire {

struct SyncRuleEntry {
  SynchroniserInfo info;
  std::function<std::unique_ptr<SyncRule>(const Options&, const SyncSetup&)> make;
  bool scheduled = true;  // the codec may follow a schedule: an exchange carries what is sent
  bool momentum = false;  // on what is sent: SynchroniserOptions::momentum has a meaning
};

const SyncRuleEntry& average_entry();
const SyncRuleEntry& easgd_entry();
const SyncRuleEntry& leader_entry();
const SyncRuleEntry& diloco_entry();
const SyncRuleEntry& sparseloco_entry();
const SyncRuleEntry& downpour_entry();
const SyncRuleEntry& parle_entry();
const SyncRuleEntry& gossip_entry();

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
