// krum_scores(): for each candidate rank the sum of squared distances to its nearest neighbours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exchange/rules/row_statistics.h"

namespace thinwire {

// score(i) = the sum of |x_i - x_j|^2 over the `neighbours` ranks j that are nearest to i, among
// `candidates`; infinite for other ranks. REQUIRES: neighbours < candidates.size().
std::vector<double> krum_scores(const PairTable& distances, std::span<const size_t> candidates,
                                size_t neighbours);

}  // namespace thinwire
