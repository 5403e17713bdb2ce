// Attack: what some workers of a run send instead of their gradients, for tests and studies of
// rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/status.h"
#include "thinwire/store.h"

namespace thinwire {

// Whether `text`, a run.attack of recipes, names attacks; errors name those that there are.
Status check_attack(const std::string& text);

// The group to which this worker's exchange sends, where the attack is on messages and this worker
// an attacker; else null. `group` outlives it.
std::unique_ptr<Group> attacking_group(const Options& recipe, Group& group);

// An attack changes the gradients of the last workers after the backward pass, before their
// memories and codecs. Attacks that follow from what the other workers send gather the gradients of
// all workers first, uncompressed, on every worker: an attacker is taken to know everything. Called
// by all workers in every step, on one thread.
class Attack {
 public:
  // Of run.attack, which check_attack passed; empty text: none. Throws AgreedError(kBadOption)
  // where the attack does not fit the number of workers. What an attack keeps is in `store`, which
  // outlives it.
  Attack(const Options& recipe, Group& group, Store& store);
  ~Attack();

  // Whether this worker's gradients stay with it until `change`.
  bool holds_gradients() const noexcept;

  // The labels that this worker learns, of `outputs` with a column for each class.
  torch::Tensor labels(const torch::Tensor& targets, const torch::Tensor& outputs) const;

  // Changes the gradients of step `step`, where this worker is an attacker.
  void change(uint64_t step, torch::nn::Module& module);

 private:
  struct Plan;
  Group& group_;
  std::unique_ptr<Plan> plan_;  // null: none
};

}  // namespace thinwire
