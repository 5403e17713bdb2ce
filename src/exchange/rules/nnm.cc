// nnm: nearest-neighbour mixing [Allouah et al., AISTATS 2023].
//
//   y_r = the mean of the n - f rows that are nearest to x_r, x_r among them
//
// Of equal distances that of the lower rank is nearer. It needs n >= 2 f + 1. It brings honest rows
// together, so that the rule after it is not misled by how much honest data differ.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "exchange/rules/mean_weight.h"
#include "exchange/rules/mix.h"

namespace thinwire {
namespace {

class Nnm final : public Mix {
 public:
  explicit Nnm(size_t f) : f_(f) {}

  size_t tolerates() const noexcept override { return f_; }
  Need needs(const Need& of_rule) const override {
    if (of_rule.count >= 2 * f_ + 1) return of_rule;
    return {2 * f_ + 1, "2 f + 1"};
  }

  void mix(const PairTable& products, const RuleCall& /*call*/,
           std::span<float> weights) const override {
    const size_t ranks = products.ranks();
    std::fill(weights.begin(), weights.end(), 0.0f);
    std::vector<double> distances(ranks), u(ranks);
    std::vector<size_t> order(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t other = 0; other < ranks; ++other) {
        std::fill(u.begin(), u.end(), 0.0);
        u[other] = 1;
        u[rank] -= 1;
        distances[other] = other == rank ? -1 : square_norm_of_sum(products, u);
      }
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return distances[a] < distances[b]; });
      for (size_t i = 0; i < ranks - f_; ++i)
        weights[rank * ranks + order[i]] = mean_weight(ranks - f_);
    }
  }

 private:
  const size_t f_;
};

}  // namespace

extern const MixEntry kNnm{
    .name = "nnm",
    .summary = "each vector becomes the mean of the n - f nearest to it",
    .options = {faulty_ranks_option("vectors that are left out of each")},
    .make = [](const Options& options) -> std::shared_ptr<const Mix> {
      return std::make_shared<Nnm>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
