// licm: the Lipschitz-inspired coordinate-wise median [Yang, Zhang, Fang and Liu,
// arXiv:1909.04532].
//
//   1. u_t[j] = the median of x_0[j], ..., x_(n-1)[j]
//   2. rank i stays if |x_i[j] - u_(t-1)[j]| <= gamma |u_t[j] - u_(t-1)[j]| for every coordinate j
//   3. result = the mean of those that stay; u_t if none does, of which the paper says nothing, and
//      in the first step
//
// u_(t-1) is that of the last step that counted. The rule knows neither how many ranks are wrong
// nor how smooth the loss is; the paper asks for fewer than (n - 1)/2 wrong ranks. Statistics: of
// each rank the number of coordinates that it fails. Medians are remembered from step to step, so
// that every rank must have all contributions: the rule goes with method gather, and no mix can
// stand before it.
//
// With a million coordinates an honest rank too fails some of them, namely where the median hardly
// moves. Then the rule is the median.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "exchange/rules/mean_weight.h"
#include "exchange/rules/sorted_columns.h"
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

class Licm final : public VectorRule {
 public:
  explicit Licm(float gamma) : gamma_(gamma) {}

  size_t tolerates(size_t ranks) const noexcept override { return ranks < 2 ? 0 : (ranks - 2) / 2; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kOwn; }

  // Before the first step there is no median, which nobody is near.
  Remembers remembers() const noexcept override { return Remembers::kOwn; }
  float first_remembered() const noexcept override {
    return std::numeric_limits<float>::quiet_NaN();
  }
  void next_remembered(std::span<const float> rows, size_t ranks,
                       std::span<float> next) const override {
    median(rows.first(ranks * next.size()), ranks, next);
  }

  size_t statistics(size_t ranks) const noexcept override { return ranks; }
  void add_statistics(std::span<const float> rows, size_t ranks,
                      std::span<double> statistics) const override {
    const size_t count = rows.size() / (ranks + 1);
    AlignedVector<float> now(count);
    next_remembered(rows, ranks, now);
    const auto before = rows.last(count);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto row = rows.subspan(rank * count, count);
      for (size_t i = 0; i < count; ++i) {
        const bool stays = std::abs(row[i] - before[i]) <= gamma_ * std::abs(now[i] - before[i]);
        statistics[rank] += stays ? 0 : 1;
      }
    }
  }

  // The last one is 1 if no rank stays.
  size_t weights(size_t ranks) const noexcept override { return ranks + 1; }
  void weigh(std::span<const double> statistics, const RuleCall& call,
             std::span<float> row_weights) const override {
    const auto stay = static_cast<size_t>(std::count(statistics.begin(), statistics.end(), 0.0));
    for (size_t rank = 0; rank < call.ranks; ++rank)
      row_weights[rank] = statistics[rank] == 0 ? mean_weight(stay) : 0.0f;
    row_weights[call.ranks] = stay == 0 ? 1.0f : 0.0f;
  }
  bool leaves_out(size_t rank, size_t ranks, std::span<const float> row_weights) const override {
    return row_weights[ranks] == 0 && row_weights[rank] == 0;
  }

  void combine(std::span<const float> rows, size_t ranks, std::span<const float> row_weights,
               std::span<float> result) const override {
    if (row_weights[ranks] == 0)
      VectorRule::combine(rows, ranks, row_weights, result);
    else
      median(rows.first(ranks * result.size()), ranks, result);
  }

 private:
  static void median(std::span<const float> rows, size_t ranks, std::span<float> result) {
    for_sorted_columns(rows, ranks, result,
                       [&](const SortedBlock& sorted, std::span<float> of_block) {
                         mean_of_rows(sorted, (ranks - 1) / 2, ranks / 2 + 1, of_block);
                       });
  }

  const float gamma_;
};

}  // namespace

extern const CombineEntry kLicm{
    .name = "licm",
    .summary =
        "the mean of the ranks that are as near to the last median as the new one, or the median",
    .options = {{.name = "gamma",
                 .type = OptionType::kNumber,
                 .fallback = "10",
                 .min = 1,
                 .max = 1e30,
                 .help = "times the median's own way that a rank may be away"}},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Licm>(static_cast<float>(options.number("gamma")));
    }};

}  // namespace thinwire
