// krum: the vector with the nearest neighbours [Blanchard et al., NeurIPS 2017], or several.
//
//   1. score(i) = the sum of |x_i - x_j|^2 over the n - f - 2 ranks j that are nearest to i
//   2. result = the mean of the m ranks of least score; of equal scores, those of lower rank
//
// m = 1 is Krum, whose result is the contribution of one rank; more are Multi-Krum, which the paper
// uses with m = n - f. `krum` and `multi_krum` are one rule with another m where none is given. It
// needs n > 2 f + 2, and n - f >= m. Statistics: squared distances of pairs. A rank that is left
// out loses its contribution, as in cge.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "exchange/rules/krum_scores.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {

std::vector<double> krum_scores(const PairTable& distances, std::span<const size_t> candidates,
                                size_t neighbours) {
  std::vector<double> scores(distances.ranks(), std::numeric_limits<double>::infinity());
  std::vector<double> of_rank;
  for (const size_t rank : candidates) {
    of_rank.clear();
    for (const size_t other : candidates)
      if (other != rank) of_rank.push_back(distances.at(rank, other));
    std::sort(of_rank.begin(), of_rank.end());
    scores[rank] = std::accumulate(of_rank.begin(),
                                   of_rank.begin() + static_cast<std::ptrdiff_t>(neighbours), 0.0);
  }
  return scores;
}

namespace {

class Krum final : public VectorRule {
 public:
  Krum(size_t f, size_t m) : f_(f), m_(m) {}

  LeastRanks least_ranks() const noexcept override {
    if (2 * f_ + 3 >= f_ + m_) return {2 * f_ + 3, "2 f + 3"};
    return {f_ + m_, "f + m"};
  }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kSquareDistances; }

  void weigh(std::span<const double> statistics, const RuleCall& /*call*/,
             std::span<float> row_weights) const override {
    const size_t ranks = row_weights.size();
    std::vector<size_t> all(ranks);
    std::iota(all.begin(), all.end(), size_t{0});
    const auto scores = krum_scores(square_distances(statistics, ranks), all, ranks - f_ - 2);
    take_least(scores, m_ == 0 ? ranks - f_ : m_, row_weights);
  }

 private:
  const size_t f_, m_;  // m = 0: n - f
};

std::shared_ptr<const Combine> make_krum(const Options& options) {
  return std::make_shared<Krum>(static_cast<size_t>(options.integer("f")),
                                static_cast<size_t>(options.integer("m")));
}

OptionInfo chosen_ranks_option(std::string_view fallback, double least, std::string_view help) {
  return {.name = "m",
          .type = OptionType::kInteger,
          .fallback = fallback,
          .min = least,
          .max = 65534,
          .unit = "ranks",
          .help = help};
}

}  // namespace

extern const CombineEntry kKrum{
    .name = "krum",
    .summary = "the mean of the m ranks whose contributions have the nearest neighbours",
    .options = {faulty_ranks_option("ranks that may send anything"),
                chosen_ranks_option("1", 1, "ranks whose mean is the result")},
    .make = make_krum};

extern const CombineEntry kMultiKrum{
    .name = "multi_krum",
    .summary = "krum with the mean of the n - f ranks of least score, or of m",
    .options = {faulty_ranks_option("ranks that may send anything"),
                chosen_ranks_option("0", 0, "ranks whose mean is the result; 0: all but f")},
    .make = make_krum};

}  // namespace thinwire
