// RobustGather: a bucket of method gather where ranks may be left out of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "exchange/methods/bucket_method.h"

namespace thinwire {

// REQUIRES: a roster, a rule that wants rows, and streams whose codecs settle no scale.
std::unique_ptr<BucketSteps> make_robust_gather(const MethodParts& parts, const Bucket& bucket,
                                                int tag);

}  // namespace thinwire
