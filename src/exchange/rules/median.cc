// The median over ranks, coordinate by coordinate [Yin et al., ICML 2018, Definition 1].
//
//   n odd:   the middle one of x_0[i], ..., x_(n-1)[i]
//   n even:  half of one middle value plus half of the other, which cannot overflow
//
// It takes up to floor((n - 1) / 2) ranks that send anything finite. It is no mean: what memories
// keep is what the codec lost of a rank's own values, and what the median leaves out is not sent
// again.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/sorted_columns.h"

namespace thinwire {
namespace {

class Median final : public ColumnRule {
 public:
  size_t tolerates(size_t ranks) const noexcept override { return (ranks - 1) / 2; }

 private:
  void of_sorted(const SortedBlock& sorted, std::span<float> result) const override {
    mean_of_rows(sorted, (sorted.rows - 1) / 2, sorted.rows / 2 + 1, result);
  }
};

}  // namespace

extern const CombineEntry kMedian{.name = "median",
                                  .summary = "the median over ranks, coordinate by coordinate",
                                  .make = [](const Options&) -> std::shared_ptr<const Combine> {
                                    return std::make_shared<Median>();
                                  }};

}  // namespace thinwire
