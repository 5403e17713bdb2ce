// AutoState: what codec "auto" decided, as checkpoints have it: under "auto/decisions", the same on
// all ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "thinwire/auto_codec.h"
#include "thinwire/state.h"

namespace thinwire {

inline constexpr const char* kAutoStateKey = "auto/decisions";

struct AutoState final : Stateful {
  std::vector<AutoDecision> decisions;
  std::vector<std::string>
      memories;  // of the exchange's own tensors and of each rule, by the last decision

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;
};

// Gives a decision's options the memories that hold what is owed.
void keep_memories(const std::vector<std::string>& memories, ExchangeOptions& options);
std::vector<std::string> memories_of(const ExchangeOptions& options);

}  // namespace thinwire
