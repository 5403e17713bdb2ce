// Labels by ranks within each sign; orders by counting.
// SPDX-License-Identifier: Apache-2.0
#include "codec/value_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace thinwire {

void label_values(std::span<const float> values, size_t bits, std::span<uint8_t> labels) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto negatives = std::stable_partition(
      order.begin(), order.end(), [&](uint32_t i) { return !std::signbit(values[i]); });
  const size_t classes = size_t{1} << (bits - 1);
  const auto label = [&](auto begin, auto end, size_t first) {
    std::stable_sort(begin, end, [&](uint32_t a, uint32_t b) {
      return std::abs(values[a]) > std::abs(values[b]);
    });
    const auto count = static_cast<size_t>(end - begin);
    for (size_t rank = 0; rank < count; ++rank)
      labels[begin[static_cast<std::ptrdiff_t>(rank)]] =
          static_cast<uint8_t>(first + rank * classes / count);
  };
  label(order.begin(), negatives, 0);
  label(negatives, order.end(), classes);
}

size_t order_by_labels(std::span<const uint8_t> labels, size_t bits, std::span<uint32_t> order) {
  std::array<uint32_t, 257> begin{};  // of each label, in `order`
  for (const uint8_t label : labels) ++begin[label + 1u];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  const size_t positive = begin[size_t{1} << (bits - 1)];
  for (uint32_t i = 0; i < labels.size(); ++i) order[begin[labels[i]]++] = i;
  return positive;
}

}  // namespace thinwire
