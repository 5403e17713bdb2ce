// mean_weight(): what one contribution to a mean counts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace thinwire {

// 1/n: what a rank's contribution to a mean over `ranks` counts.
inline float mean_weight(size_t ranks) noexcept { return 1.0f / static_cast<float>(ranks); }

}  // namespace thinwire
