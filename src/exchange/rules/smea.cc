// smea: smallest maximum eigenvalue averaging [Allouah et al., ICML 2023].
//
//   result = the mean of the n - f ranks whose covariance has the least largest eigenvalue
//
// Of several such sets it takes the one that comes first when their ranks are listed in order;
// eigenvalues that differ by less than 1e-12 of themselves are equal. It needs n >= 2 f + 1.
// Statistics: products of pairs.
//
// All sets are tried. Whether one is better than the best so far is asked first, by n^3 / 6
// products at most, and eigenvalues are computed of the few that are. C(n, f) n^3 must be 2e8 at
// most, which is a quarter of a second: 118 ranks with f = 1, 52 with f = 2, 17 with f = 8.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "exchange/rules/covariance.h"
#include "exchange/rules/mean_weight.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

constexpr double kMostWork = 2e8;
constexpr double kEqual = 1e-12;

class Smea final : public VectorRule {
 public:
  explicit Smea(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t most_ranks() const noexcept override {
    if (f_ == 0) return std::numeric_limits<size_t>::max();
    size_t most = 2 * f_ + 1;
    while (work(most + 1) <= kMostWork) ++most;
    return most;
  }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kProducts; }

  void weigh(std::span<const double> statistics, const RuleCall& call,
             std::span<float> row_weights) const override {
    const PairTable table = products(statistics, call.ranks);
    const std::vector<size_t> finite = finite_rows(table);
    std::vector<bool> in(call.ranks, true);
    std::fill(in.end() - static_cast<std::ptrdiff_t>(f_), in.end(), false);
    std::vector<bool> best = in;
    double least = std::numeric_limits<double>::infinity();
    const std::vector<double> counts(call.ranks - f_, 1.0);
    do {
      std::vector<size_t> rows;
      for (const size_t rank : finite)
        if (in[rank]) rows.push_back(rank);
      if (rows.size() < counts.size()) continue;
      const SquareMatrix covariance = covariance_of(table, rows, counts);
      if (!is_below(covariance, least * (1 - kEqual))) continue;
      least = largest_eigenpair(covariance).value;
      best = in;
    } while (f_ > 0 && std::prev_permutation(in.begin(), in.end()));
    for (size_t rank = 0; rank < call.ranks; ++rank)
      row_weights[rank] = best[rank] ? mean_weight(call.ranks - f_) : 0.0f;
  }

 private:
  // C(n, f) n^3.
  double work(size_t ranks) const noexcept {
    const auto n = static_cast<double>(ranks);
    double sets = n * n * n;
    for (size_t i = 0; i < f_; ++i)
      sets *= (n - static_cast<double>(i)) / static_cast<double>(i + 1);
    return sets;
  }

  const size_t f_;
};

}  // namespace

extern const CombineEntry kSmea{
    .name = "smea",
    .summary = "the mean of the n - f ranks whose covariance has the least largest eigenvalue",
    .options = {faulty_ranks_option("ranks that are left out", 8)},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Smea>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
