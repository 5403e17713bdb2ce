// The mean around the median, coordinate by coordinate [Xie et al., arXiv:1802.10116, Definition
// 6].
//
//   result[i] = the mean of the n - f of x_0[i], ..., x_(n-1)[i] that are nearest to their median
//
// The median of an even number of values is the mean of the two middle ones; of two values equally
// near it, the smaller one counts as nearer. It needs n >= 2 f + 1. What a rank loses by it is not
// sent again, as with the median.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/sorted_columns.h"

namespace thinwire {
namespace {

class MeanAroundMedian final : public ColumnRule {
 public:
  explicit MeanAroundMedian(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }

 private:
  void of_sorted(const SortedBlock& sorted, std::span<float> result) const override {
    mean_around_median(sorted, sorted.rows - f_, result);
  }

  const size_t f_;
};

}  // namespace

extern const CombineEntry kMeanAroundMedian{
    .name = "mean_around_median",
    .summary = "the mean of the n - f values of each coordinate that are nearest to the median",
    .options = {faulty_ranks_option("values that are left out")},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<MeanAroundMedian>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
