// bulyan: Krum chooses, and a mean around the median combines [El Mhamdi et al., ICML 2018].
//
//   1. Of the ranks not chosen yet, krum chooses one, t = n - 2 f times: scores are over the r - f
//      - 2 nearest of the r ranks that are left, one at least; ties go to the lower rank
//   2. result[i] = the mean of the t - 2 f values of the chosen ranks that are nearest to their
//      median
//
// It needs n >= 4 f + 3. Statistics: squared distances of pairs. The vectors are chosen as a whole,
// so that a hostile one must be near honest ones; the second part bounds what it can do in a single
// coordinate, which Krum does not.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "exchange/rules/krum_scores.h"
#include "exchange/rules/sorted_columns.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

class Bulyan final : public VectorRule {
 public:
  explicit Bulyan(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {4 * f_ + 3, "4 f + 3"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kSquareDistances; }

  // 1/t for the chosen ones.
  void weigh(std::span<const double> statistics, const RuleCall& /*call*/,
             std::span<float> row_weights) const override {
    const size_t ranks = row_weights.size();
    const PairTable distances = square_distances(statistics, ranks);
    std::vector<size_t> left(ranks);
    std::iota(left.begin(), left.end(), size_t{0});
    std::fill(row_weights.begin(), row_weights.end(), 0.0f);
    for (size_t chosen = 0; chosen < ranks - 2 * f_; ++chosen) {
      const size_t neighbours = left.size() > f_ + 3 ? left.size() - f_ - 2 : 1;
      const auto scores = krum_scores(distances, left, std::min(neighbours, left.size() - 1));
      const auto best = std::min_element(left.begin(), left.end(),
                                         [&](size_t a, size_t b) { return scores[a] < scores[b]; });
      row_weights[*best] = 1.0f / static_cast<float>(ranks - 2 * f_);
      left.erase(best);
    }
  }

  void combine(std::span<const float> rows, size_t /*ranks*/, std::span<const float> row_weights,
               std::span<float> result) const override {
    const size_t count = result.size();
    AlignedVector<float> chosen;
    chosen.reserve(rows.size());
    size_t number = 0;
    for (size_t rank = 0; rank < row_weights.size(); ++rank) {
      if (row_weights[rank] == 0) continue;
      const auto row = rows.subspan(rank * count, count);
      chosen.insert(chosen.end(), row.begin(), row.end());
      ++number;
    }
    for_sorted_columns(chosen, number, result,
                       [&](const SortedBlock& sorted, std::span<float> of_block) {
                         mean_around_median(sorted, number - 2 * f_, of_block);
                       });
  }

 private:
  const size_t f_;
};

}  // namespace

extern const CombineEntry kBulyan{
    .name = "bulyan",
    .summary = "the mean around the median of n - 2 f ranks that krum chooses one after another",
    .options = {faulty_ranks_option("ranks that may send anything", 16383)},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Bulyan>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
