// VectorRule: the weighted sum of rows, and the weights of those that score best.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/vector_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "exchange/rules/mean_weight.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"

namespace thinwire {

// A row of weight 0 is left out rather than multiplied: it is large, and perhaps hostile. A sum of
// one row of weight 1 is that row, to the bit, since it starts from -0.0.
void VectorRule::combine(std::span<const float> rows, size_t ranks,
                         std::span<const float> row_weights, std::span<float> result) const {
  const size_t count = result.size();
  if (row_weights[0] == 0) {
    kernel::fill(result, -0.0f);
  } else {
    if (rows.data() != result.data()) std::copy_n(rows.begin(), count, result.begin());
    kernel::scale(result, row_weights[0]);
  }
  for (size_t rank = 1; rank < ranks; ++rank)
    if (row_weights[rank] != 0)
      kernel::add_floats(std::as_bytes(rows.subspan(rank * count, count)), row_weights[rank],
                         result);
}

void VectorRule::take_least(std::span<const double> scores, size_t count,
                            std::span<float> row_weights) {
  const auto score = [&](size_t rank) {
    return std::isfinite(scores[rank]) ? scores[rank] : std::numeric_limits<double>::infinity();
  };
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score(a) < score(b); });
  std::fill(row_weights.begin(), row_weights.end(), 0.0f);
  for (size_t i = 0; i < count; ++i) row_weights[order[i]] = mean_weight(count);
}

}  // namespace thinwire
