// LeaderRule: the checked options of Leader SGD.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sync/sync_rule.h"
#include "thinwire/options.h"

namespace thinwire {

struct LeaderRule {
  uint64_t tau = 1;
  uint64_t tau_global = 1;
  float pull = 0;
  float pull_global = 0;
  float prox = 0;  // of each step, to the last leader of the group
  float prox_global = 0;
  int groups = 0;  // 0: one for each host
  size_t window = 1;
  bool asynchronous = false;
  std::chrono::milliseconds patience{0};
};

std::vector<OptionInfo> leader_options();

// What the options say, whatever the ranks and the codec are. Throws Error(kBadOption) for what
// does not fit together.
LeaderRule read_leader_rule(const Options& options);

// Throws Error(kBadOption) for what does not fit together, Error(kUnsupported) for a codec that
// cannot do it.
LeaderRule make_leader_rule(const Options& options, const SyncSetup& setup);

}  // namespace thinwire
