// caf: the covariance-bound agnostic filter [Allouah, Guerraoui and Stephan, ICML 2025].
//
//   1. c_i = 1 for every rank
//   2. mu, l and v = the mean in which rank i counts c_i, the largest eigenvalue of the covariance
//      around it, and its eigenvector
//   3. t_i = ((x_i - mu) v)^2, and c_i becomes c_i (1 - t_i / t_max), where t_max is the largest of
//      the ranks with c_i > 0, and those within 1e-9 of it count as equal to it, so that equal
//      vectors go together; again from 2, while the sum of c_i is above n - 2 f
//   4. result = the mu whose l was least; of equal ones the first
//
// Each round leaves out one rank at least, so that there are 2 f at most. f = 0 gives the mean. It
// needs n >= 2 f + 1. Statistics: products of pairs, from which covariance.h has l and the t_i: the
// eigenproblem is that of an n x n matrix, and is solved exactly.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "exchange/rules/covariance.h"
#include "exchange/rules/mean_weight.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

constexpr double kEqual = 1e-9;

class Caf final : public VectorRule {
 public:
  explicit Caf(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kProducts; }

  void weigh(std::span<const double> statistics, const RuleCall& call,
             std::span<float> row_weights) const override {
    const size_t ranks = call.ranks;
    const PairTable table = products(statistics, ranks);
    std::vector<double> counts(ranks, 0.0);
    for (const size_t rank : finite_rows(table)) counts[rank] = 1;
    std::vector<double> best = counts;
    double least = std::numeric_limits<double>::infinity();
    const double enough = static_cast<double>(ranks - 2 * f_);
    while (f_ > 0 && std::accumulate(counts.begin(), counts.end(), 0.0) > enough) {
      const std::vector<double> before = counts;
      const double variance = filter(table, counts);
      if (variance < least) {
        least = variance;
        best = before;
      }
      if (counts == before) break;  // all are equal
    }
    const double sum = std::accumulate(best.begin(), best.end(), 0.0);
    for (size_t rank = 0; rank < ranks; ++rank)
      row_weights[rank] = sum > 0 ? static_cast<float>(best[rank] / sum) : mean_weight(ranks);
  }

 private:
  // Step 3; returns l.
  static double filter(const PairTable& table, std::vector<double>& counts) {
    std::vector<size_t> rows;
    std::vector<double> of_rows;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] <= 0) continue;
      rows.push_back(rank);
      of_rows.push_back(counts[rank]);
    }
    const Eigenpair along = largest_eigenpair(covariance_of(table, rows, of_rows));
    if (!(along.value > 0)) return along.value;
    std::vector<double> squares;  // t_i, up to a factor
    for (size_t i = 0; i < rows.size(); ++i)
      squares.push_back(along.vector[i] * along.vector[i] / of_rows[i]);
    const double most = *std::max_element(squares.begin(), squares.end());
    for (size_t i = 0; i < rows.size(); ++i) {
      const double stays = 1 - squares[i] / most;
      counts[rows[i]] *= stays < kEqual ? 0 : stays;
    }
    return along.value;
  }

  const size_t f_;
};

}  // namespace

extern const CombineEntry kCaf{
    .name = "caf",
    .summary = "a mean in which ranks count less where contributions differ most",
    .options = {faulty_ranks_option("ranks that may send anything")},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Caf>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
