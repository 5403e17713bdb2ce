// Decides where a sequence of layers is cut into stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// The first layer of each stage; the first is 0. Stages are never empty. Costs are those of a
// layer, in any unit (seconds, parameters), finite and at least 0.

// The cut whose most expensive stage costs least; of several the one whose first stage ends first,
// then the second, and so on. Fails with kBadOption where there are fewer layers than stages, or no
// stages. Takes stages x layers^2 steps.
Result<std::vector<size_t>> balanced_cut(std::span<const double> costs, size_t stages);

// A cut behind each of the named layers, which are given in order. Fails with kUnknownName, naming
// the layers there are, or kBadOption where a name comes out of order, twice, or last of all
// layers.
Result<std::vector<size_t>> named_cut(std::span<const std::string> layers,
                                      std::span<const std::string> last_of_stage);

}  // namespace thinwire
