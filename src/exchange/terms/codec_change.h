// changed_options(): checks a change of an exchange's options between two steps, so that no owed
// value is lost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"

namespace thinwire {

// The options that `asked` leads to from those of now: its codec, feedback, method, grouping, rules
// and steps_per_epoch, where "auto" and an absent grouping are those of the memory that holds what
// a setting's tensors are owed, if there is one. `owes` says of each section of now whether its
// owners owe something. Fails, beside the mistakes of resolve_sections,
//   - kBadOption where a tensor would have another memory than the one that holds what it is owed,
//     where tensors that share a memory would be parted, and where another option of `asked`
//     differs.
Result<ExchangeOptions> changed_options(const ExchangeOptions& now, const Sections& sections,
                                        const std::vector<bool>& owes, const ExchangeOptions& asked,
                                        const std::vector<TensorSpec>& tensors, uint64_t step);

// What all ranks must say alike of a change, mistakes included.
std::string change_text(ExchangeOptions asked, Result<ExchangeOptions>& changed, uint64_t step);

}  // namespace thinwire
