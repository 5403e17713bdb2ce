// Failing together: what one rank finds wrong, all ranks throw.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "thinwire/group.h"

namespace thinwire {

// Runs `work` on every rank; when it throws an Error on some, throws the lowest such rank's on all
// as an AgreedError, before any of them goes on. Called by all ranks.
void together(Group& group, const std::function<void()>& work);

}  // namespace thinwire
