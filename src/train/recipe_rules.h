// The rules of a recipe's exchange, as one text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "thinwire/status.h"
#include "thinwire/tensor_rule.h"

namespace thinwire {

// "{*.bias} fp32 {head.*} int8 {feedback} ef21 {method} gather": a pattern in braces and its codec,
// and what else the rule says behind that: feedback, method, grouping. Fails with what is wrong in
// which rule.
Result<std::vector<TensorRule>> parse_rules(std::string_view text);

}  // namespace thinwire
