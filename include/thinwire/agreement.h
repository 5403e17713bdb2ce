// Checks that ranks agree on a text before they depend on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "thinwire/group.h"

namespace thinwire {

// Throws Error(kMismatch) on every rank when `text` (lines) differs between ranks, naming the first
// line in which the rank that differs from most is not like them, and that rank. `what` is the subject:
// "recipe". Called by all ranks.
void require_agreement(Group& group, std::string_view what, std::string_view text);

}  // namespace thinwire
