// The collectives of method dense, for an exchange whose ranks are whole groups.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exchange/methods/bucket_method.h"

namespace thinwire {

// One for each bucket of `parts`, in their order.
std::vector<std::unique_ptr<Collective>> dense_buckets(const MethodParts& parts);

}  // namespace thinwire
