// bucketing: means of s ranks each, drawn anew in every step [Karimireddy et al., ICLR 2022].
//
//   y_b = the mean of x_r over the ranks r of bucket b; ceil(n/s) buckets, the last may be smaller
//
// Which ranks share a bucket is drawn by seed and step. Up to f wrong ranks spoil up to f buckets,
// so that a rule which needs k rows needs s (k - 1) + 1 ranks, where f is that of the buckets.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "core/random.h"
#include "exchange/rules/mean_weight.h"
#include "exchange/rules/mix.h"

namespace thinwire {
namespace {

constexpr uint32_t kDrawStream = 0xffff;  // codecs draw by salt, a rank or twice that

class Bucketing final : public Mix {
 public:
  explicit Bucketing(size_t size) : size_(size) {}

  size_t rows(size_t ranks) const noexcept override { return (ranks + size_ - 1) / size_; }

  Need needs(const Need& of_rule) const override {
    return {size_ * (of_rule.count - 1) + 1, "s (" + of_rule.formula + " - 1) + 1"};
  }

  void mix(const PairTable& products, const RuleCall& call,
           std::span<float> weights) const override {
    const size_t ranks = products.ranks();
    std::vector<size_t> order(ranks);
    std::iota(order.begin(), order.end(), size_t{0});
    const RandomKey key{
        .seed = call.seed, .use = RandomUse::kCodec, .step = call.step, .stream = kDrawStream};
    for (size_t i = ranks; i > 1; --i) std::swap(order[i - 1], order[random_below(key, i, i)]);
    std::fill(weights.begin(), weights.end(), 0.0f);
    for (size_t i = 0; i < ranks; ++i) {
      const size_t bucket = i / size_, begin = bucket * size_;
      weights[bucket * ranks + order[i]] = mean_weight(std::min(size_, ranks - begin));
    }
  }

 private:
  const size_t size_;
};

}  // namespace

extern const MixEntry kBucketing{
    .name = "bucketing",
    .summary = "means of s vectors each, drawn anew in every step",
    .options = {{.name = "s",
                 .type = OptionType::kInteger,
                 .fallback = "2",
                 .min = 1,
                 .max = 65534,
                 .unit = "ranks",
                 .help = "vectors in a bucket"}},
    .make = [](const Options& options) -> std::shared_ptr<const Mix> {
      return std::make_shared<Bucketing>(static_cast<size_t>(options.integer("s")));
    }};

}  // namespace thinwire
