// The median over ranks, coordinate by coordinate [Yin et al., ICML 2018, Definition 1].
//
//   n odd:   the middle one of x_0[i], ..., x_(n-1)[i]
//   n even:  half of one middle value plus half of the other, which cannot overflow
//
// It takes up to floor((n - 1) / 2) ranks that send anything finite. It is no mean: what memories
// keep is what the codec lost of a rank's own values, and what the median leaves out is not sent
// again.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "exchange/owner/combine.h"

namespace thinwire {
namespace {

class Median final : public Combine {
 public:
  bool wants_rows() const noexcept override { return true; }

  void combine(std::span<const float> rows, size_t ranks, std::span<const float> /*none*/,
               std::span<float> result) const override {
    const size_t count = result.size(), middle = ranks / 2;
    std::vector<float> column(ranks);
    for (size_t i = 0; i < count; ++i) {
      for (size_t rank = 0; rank < ranks; ++rank) column[rank] = rows[rank * count + i];
      const auto upper = column.begin() + static_cast<std::ptrdiff_t>(middle);
      std::nth_element(column.begin(), upper, column.end());
      result[i] = *upper;
      if (ranks % 2 == 0)
        result[i] = 0.5f * *std::max_element(column.begin(), upper) + 0.5f * *upper;
    }
  }
};

}  // namespace

extern const CombineEntry kMedian{.name = "median",
                                  .summary = "the median over ranks, coordinate by coordinate",
                                  .make = [](const Options&) -> std::shared_ptr<const Combine> {
                                    return std::make_shared<Median>();
                                  }};

}  // namespace thinwire
