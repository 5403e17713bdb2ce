// A mean from the sum over ranks that a library formed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace thinwire {

// Replaces the sums over `ranks` ranks by their means, in one pass over memory. Returns whether all
// are finite.
bool sum_to_mean(std::span<float> values, size_t ranks);

}  // namespace thinwire
