// FaultyRanks: whose values the result of a step lacks by a fault, and by which rule the others are
// combined.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/faulty/account.h"
#include "exchange/faulty/account_rounds.h"
#include "exchange/faulty/roster.h"
#include "exchange/rules/combine.h"
#include "exchange/step/verdict.h"

namespace thinwire {

// A rule that tolerates f ranks of n is given the rows of n - k, where k ranks are left out, and
// tolerates f - k of these: f - k is enough for n - k whenever f was for n. Of ranks whose fault is
// not proven, some may be honest, and their accusers are among the f then. So f is smaller only by
// those proven, and by as many of the others as the number of rows asks for. One thread at a time.
class FaultyRanks {
 public:
  // REQUIRES: the rule tolerates a rank of those of the context at least.
  FaultyRanks(StepContext& context, const NamedCombine& combine);

  Roster& roster() noexcept { return roster_; }

  // Starts a step. `asks`: this rank wants to skip it.
  void begin(bool asks);

  // After all values have come, or were given up: the ranks agree whose values count. False: too
  // many do not. Throws Error(kCorrupt) on a rank that cannot have the result of the others.
  bool agree();

  // What agree came to, until the next begin.
  const Decision& decision() const noexcept { return decision_; }
  std::vector<bool> counted() const;  // by rank
  const Combine& rule() const noexcept { return *rule_; }

  // Why too many do not, as the fault that skips the step.
  Verdict verdict() const noexcept;
  std::string text() const;  // of a verdict that names no stream: "ranks 1, 3 were silent"

 private:
  void choose_rule();

  StepContext& context_;
  const std::string text_;  // of the rule
  Roster roster_;
  AccountRounds rounds_;
  Decision decision_;
  std::vector<std::shared_ptr<const Combine>>
      rules_;  // by how many faulty ranks are known; null: not made
  const Combine* rule_ = nullptr;
};

}  // namespace thinwire
