// The geometric median by Weiszfeld's iteration, smoothed as in RFA [Pillutla et al., IEEE TSP
// 2022].
//
//   z = sum of w_i x_i;   w_i = 1/max(nu, |z - x_i|), divided by their sum;   again, until w stays
//
// z is the point whose sum of distances to all x_i is least, up to nu. Fewer than half of the ranks
// cannot move it beyond a multiple of the spread of the others, whatever they send.
//
// Statistics: products of pairs, G_ij = x_i x_j. All iterations follow from these, so that one
// round between the ranks is enough:
//
//   |z - x_k|^2 = sum over i, j of w_i w_j G_ij  -  2 sum over i of w_i G_ik  +  G_kk
//
// The iteration starts from weights by the distances to the vector that has the least sum of
// distances to the others, at once far from what is hostile. (From the mean it would come nearer to
// the result by the factor f/(n - f) at a time, over as many orders of magnitude as there are.) It
// ends when no weight changes by more than 1e-12, or after 1000 rounds.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

constexpr int kMostRounds = 1000;
constexpr double kStill = 1e-12;

using Numbers = std::vector<double>;

// Distances of sum w_i x_i to every x_k.
Numbers distances_to(const PairTable& products, const Numbers& w) {
  const size_t ranks = w.size();
  Numbers with(ranks, 0.0);  // z x_k
  for (size_t k = 0; k < ranks; ++k)
    for (size_t i = 0; i < ranks; ++i)
      if (w[i] != 0) with[k] += w[i] * products.at(i, k);
  double square = 0;
  for (size_t i = 0; i < ranks; ++i)
    if (w[i] != 0) square += w[i] * with[i];
  Numbers distances(ranks);
  for (size_t k = 0; k < ranks; ++k) {
    const double of_k = square - 2 * with[k] + products.at(k, k);
    distances[k] = std::isnan(of_k) ? INFINITY : std::sqrt(std::max(0.0, of_k));
  }
  return distances;
}

// 1/max(least, distance), divided by their sum; 0 where a distance is not finite. Equal if all are
// 0.
Numbers weights_of(const Numbers& distances, double least) {
  Numbers w;
  double sum = 0;
  for (const double distance : distances) {
    w.push_back(std::isfinite(distance) ? 1 / std::max(least, distance) : 0.0);
    sum += w.back();
  }
  for (double& weight : w)
    weight = sum > 0 ? weight / sum : 1 / static_cast<double>(distances.size());
  return w;
}

// By the distances to the vector with the least sum of distances; half of the ranks count alike.
Numbers first_weights(const PairTable& products, double nu) {
  const size_t ranks = products.ranks();
  Numbers best;
  double least = INFINITY;
  for (size_t a = 0; a < ranks; ++a) {
    Numbers only(ranks, 0.0);
    only[a] = 1;
    Numbers distances = distances_to(products, only);
    std::sort(distances.begin(), distances.end());
    double sum = 0;
    for (const double distance : distances) sum += distance;
    if (best.empty() || sum < least) {
      best = distances_to(products, only);
      least = sum;
    }
  }
  Numbers sorted = best;
  std::sort(sorted.begin(), sorted.end());
  return weights_of(best, std::max(nu, sorted[ranks / 2]));
}

class GeometricMedian final : public VectorRule {
 public:
  explicit GeometricMedian(double nu) : nu_(nu) {}

  size_t tolerates(size_t ranks) const noexcept override { return (ranks - 1) / 2; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kProducts; }

  void weigh(std::span<const double> statistics, const RuleCall& /*call*/,
             std::span<float> row_weights) const override {
    const PairTable table = products(statistics, row_weights.size());
    Numbers w = first_weights(table, nu_);
    for (int round = 0; round < kMostRounds; ++round) {
      const Numbers before = w;
      w = weights_of(distances_to(table, w), nu_);
      double change = 0;
      for (size_t i = 0; i < w.size(); ++i) change = std::max(change, std::abs(w[i] - before[i]));
      if (change <= kStill) break;
    }
    std::transform(w.begin(), w.end(), row_weights.begin(),
                   [](double weight) { return static_cast<float>(weight); });
  }

 private:
  const double nu_;
};

}  // namespace

extern const CombineEntry kGeometricMedian{
    .name = "geometric_median",
    .summary = "the vector with the least sum of distances to all contributions",
    .options = {{.name = "nu",
                 .type = OptionType::kNumber,
                 .fallback = "1e-6",
                 .min = 1e-30,
                 .max = 1e30,
                 .unit = "L2 norm",
                 .help = "distances below this count as this"}},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<GeometricMedian>(options.number("nu"));
    }};

}  // namespace thinwire
