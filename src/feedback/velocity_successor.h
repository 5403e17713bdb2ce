// The memory `velocity` in mid-run: memories that go on from its state, and how they take it over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "thinwire/feedback.h"

namespace thinwire {

// Whether `memory` has the velocity of `before` with the same momentum, and something besides that
// is zero while nothing waits. Then a codec that leaves values may follow one that leaves none.
// REQUIRES: both can be found.
bool succeeds_velocity(std::string_view memory, std::string_view before);

// Gives a new memory the state of the one that it succeeds. REQUIRES: the same tensors.
void take_velocity(const Feedback& before, Feedback& memory);

}  // namespace thinwire
