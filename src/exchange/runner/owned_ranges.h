// Where an owner's pieces of streams lie in the caller's tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/methods/method.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Of `pieces` of `streams`, in any order: ranges in the order of tensors and positions. Ranges that
// touch become one.
std::vector<OwnedRange> owned_ranges(std::span<const Piece> pieces, const Streams& streams);

}  // namespace thinwire
