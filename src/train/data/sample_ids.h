// The check that every data set makes of the ids it is asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/check.h"

namespace thinwire {

inline void check_ids(std::span<const uint64_t> ids, uint64_t size) {
  for (const uint64_t id : ids)
    THINWIRE_CHECK(id < size,
                   "data set: no sample " + std::to_string(id) + " of " + std::to_string(size));
}

}  // namespace thinwire
