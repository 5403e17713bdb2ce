// Sections: the tensors of an exchange that have the same codec, memory and method.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/terms/terms.h"
#include "thinwire/exchange.h"

namespace thinwire {

// A *setting* is the exchange's own codec options, or those of one rule, as they were given.
// *Terms* are a setting in which every "auto" is decided, in one step. A *section* is the tensors
// that have one codec, memory and method: those of one rule, of several rules that say the same, or
// those that no rule names.
struct Section {
  ExchangeOptions options;  // of an exchange of these tensors alone: without rules
  Terms terms;
  std::vector<size_t> tensors;  // indices in the list given, ascending
};

struct Sections {
  std::vector<Section> used;      // those that have tensors; that of the exchange's own codec first
  std::vector<size_t> of_tensor;  // index in `used`
  std::vector<size_t> of_setting;  // of the exchange's own, then of each rule; kUnused: in none
  Selection of_all;                // if these are sections of some tensors only (levels/holders.h)
};

inline constexpr size_t kUnused = SIZE_MAX;

// The options that tensors have by themselves, and those of each rule; none has rules.
std::vector<ExchangeOptions> settings_of(const ExchangeOptions& options);

// What a setting is called in errors: "", or "rule '*.bias': ".
std::string name_of_setting(const ExchangeOptions& options, size_t setting);

// The first rule that fits decides. Fails as check_exchange does, and where a rule decides for no
// tensor.
Result<Sections> resolve_sections(const ExchangeOptions& options,
                                  const std::vector<TensorSpec>& tensors, uint64_t step);

// REQUIRES: resolve_sections succeeded.
Plan plan_of(const Sections& sections, const std::vector<TensorSpec>& tensors,
             const ExchangeOptions& options);

}  // namespace thinwire
