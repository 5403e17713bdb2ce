// A mean from the sum over ranks.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/sum_to_mean.h"

#include "exchange/rules/mean_weight.h"
#include "kernel/scale_sums.h"

namespace thinwire {

bool sum_to_mean(std::span<float> values, size_t ranks) {
  return kernel::scale_sums(values, mean_weight(ranks));
}

}  // namespace thinwire
