// dense_buckets(): makes the buckets of method dense, for the method itself and for sums inside a
// group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exchange/methods/bucket_method.h"

namespace thinwire {

// One for each bucket of `parts`, in their order. Rank owner_of[i] owns stream i as a whole; if
// owner_of is empty, buckets are cut into shards of equal length.
std::vector<std::unique_ptr<BucketSteps>> dense_buckets(const MethodParts& parts,
                                                        std::span<const size_t> owner_of);

}  // namespace thinwire
