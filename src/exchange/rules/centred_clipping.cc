// centred_clipping: contributions are clipped around the last result [Karimireddy, He and Jaggi,
// ICML 2021].
//
//   v_0 = the result of the last step that counted; zeros before the first
//   v_l = v_(l-1) + (1/n) sum over i of (x_i - v_(l-1)) min(1, tau / |x_i - v_(l-1)|),
//   l = 1, ..., L
//   result = v_L
//
// A rank moves the result by tau/n in each iteration at most, whatever it sends. So tau should be a
// few times the distance of honest contributions to their mean; the paper's guarantee holds for a
// tenth of wrong ranks, with momentum at the workers. The result starts from zeros, and takes some
// steps to come to gradients that are longer than tau.
//
// Statistics: products of pairs, v_0 among the rows. All v_l are weighted sums of these rows, and
// so the distances follow from the products, and one round between the ranks is enough for all
// iterations. No rank is left out altogether.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/rules/mix.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

class CentredClipping final : public VectorRule {
 public:
  CentredClipping(double tau, int64_t iterations) : tau_(tau), iterations_(iterations) {}

  size_t tolerates(size_t ranks) const noexcept override { return (ranks - 1) / 2; }
  Remembers remembers() const noexcept override { return Remembers::kResult; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kProducts; }
  size_t weights(size_t ranks) const noexcept override { return ranks + 1; }

  void weigh(std::span<const double> statistics, const RuleCall& call,
             std::span<float> row_weights) const override {
    const size_t ranks = call.ranks;
    const PairTable table = products(statistics, ranks + 1);
    std::vector<double> v(ranks + 1, 0.0);  // weights of the rows
    v[ranks] = 1;
    for (int64_t round = 0; round < iterations_; ++round) {
      std::vector<double> next = v;
      for (size_t rank = 0; rank < ranks; ++rank) {
        std::vector<double> away = v;
        for (double& x : away) x = -x;
        away[rank] += 1;
        const double distance = std::sqrt(square_norm_of_sum(table, away));
        const double share = (distance <= tau_ ? 1 : tau_ / distance) / static_cast<double>(ranks);
        for (size_t row = 0; row < v.size(); ++row) next[row] += share * away[row];
      }
      v = std::move(next);
    }
    std::transform(v.begin(), v.end(), row_weights.begin(),
                   [](double weight) { return static_cast<float>(weight); });
  }

  void combine(std::span<const float> rows, size_t ranks, std::span<const float> row_weights,
               std::span<float> result) const override {
    VectorRule::combine(rows, ranks + 1, row_weights, result);
  }

 private:
  const double tau_;
  const int64_t iterations_;
};

}  // namespace

extern const CombineEntry kCentredClipping{
    .name = "centred_clipping",
    .summary = "the last result, moved by each rank's difference to it, clipped to a norm",
    .options = {{.name = "tau",
                 .type = OptionType::kNumber,
                 .fallback = "10",
                 .min = 1e-30,
                 .max = 1e30,
                 .unit = "L2 norm",
                 .help = "the longest difference that counts in full"},
                {.name = "iterations",
                 .type = OptionType::kInteger,
                 .fallback = "1",
                 .min = 1,
                 .max = 1000,
                 .help = "times that the result is moved"}},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<CentredClipping>(options.number("tau"),
                                               options.integer("iterations"));
    }};

}  // namespace thinwire
