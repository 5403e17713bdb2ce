// Checks that ranks agree on a text before they depend on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "thinwire/group.h"

namespace thinwire {

// Throws Error(kMismatch) on every rank if `text` (lines) differs between ranks. The error names a
// rank whose text differs from that of most ranks, and the first line in which it differs. `what`
// is the subject: "recipe". Called by all ranks.
void require_agreement(Group& group, std::string_view what, std::string_view text);

}  // namespace thinwire
