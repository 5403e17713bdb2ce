// Says where the texts of two ranks differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace thinwire {

// "line 3 is 'seed 1' on rank 2, 'seed 0' on rank 0". REQUIRES: the texts differ.
std::string first_difference(std::string_view odd, size_t odd_rank, std::string_view usual,
                             size_t usual_rank);

}  // namespace thinwire
