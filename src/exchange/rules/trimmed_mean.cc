// The trimmed mean over ranks, coordinate by coordinate [Yin et al., ICML 2018, Definition 2].
//
//   result[i] = the mean of x_0[i], ..., x_(n-1)[i] without the f smallest and the f largest
//
// It needs n >= 2 f + 1. f = 0 is the mean, added in the order of values. What a rank loses by it
// is not sent again, as with the median.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/sorted_columns.h"

namespace thinwire {
namespace {

class TrimmedMean final : public ColumnRule {
 public:
  explicit TrimmedMean(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }

 private:
  void of_sorted(const SortedBlock& sorted, std::span<float> result) const override {
    mean_of_rows(sorted, f_, sorted.rows - f_, result);
  }

  const size_t f_;
};

}  // namespace

extern const CombineEntry kTrimmedMean{
    .name = "trimmed_mean",
    .summary = "the mean of all but the f smallest and the f largest values of each coordinate",
    .options = {faulty_ranks_option("values that are left out at each end")},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<TrimmedMean>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
