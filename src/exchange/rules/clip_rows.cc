// clip: static clipping of every vector.
//
//   y_r = x_r min(1, norm / |x_r|)
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "exchange/rules/mix.h"

namespace thinwire {
namespace {

class ClipRows final : public Mix {
 public:
  explicit ClipRows(double norm) : norm_(norm) {}

  Need needs(const Need& of_rule) const override { return of_rule; }

  void mix(const PairTable& products, const RuleCall& /*call*/,
           std::span<float> weights) const override {
    const size_t ranks = products.ranks();
    std::fill(weights.begin(), weights.end(), 0.0f);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const double length = std::sqrt(std::max(0.0, products.at(rank, rank)));
      weights[rank * ranks + rank] = length <= norm_ ? 1.0f : static_cast<float>(norm_ / length);
    }
  }

 private:
  const double norm_;
};

}  // namespace

extern const MixEntry kClipRows{.name = "clip",
                                .summary = "vectors longer than a norm are scaled to it",
                                .options = {{.name = "norm",
                                             .type = OptionType::kNumber,
                                             .fallback = "1",
                                             .min = 1e-30,
                                             .max = 1e30,
                                             .unit = "L2 norm",
                                             .help = "the longest that a vector may be"}},
                                .make = [](const Options& options) -> std::shared_ptr<const Mix> {
                                  return std::make_shared<ClipRows>(options.number("norm"));
                                }};

}  // namespace thinwire
