// krum: the vector with the nearest neighbours [Blanchard et al., NeurIPS 2017], or several.
//
//   1. score(i) = the sum of |x_i - x_j|^2 over the n - f - 2 ranks j that are nearest to i
//   2. result = the mean of the m ranks of least score; of equal scores, those of lower rank
//
// m = 1 is Krum, whose result is the contribution of one rank; more are Multi-Krum, which the paper
// uses with m = n - f. It needs n > 2 f + 2, and n - f >= m. Statistics: n (n - 1) / 2 squared
// distances of pairs (0, 1), (0, 2), ..., (n - 2, n - 1), each of which costs a read of two rows.
// Differences are rounded to fp32; one that overflows makes its distance infinite. A rank that is
// left out loses its contribution, as in cge.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "exchange/owner/vector_rule.h"
#include "kernel/add_floats.h"
#include "thinwire/codec.h"

namespace thinwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double square_distance(std::span<const float> a, std::span<const float> b) {
  std::array<float, 4096> room;  // in cache
  double sum = 0;
  for (size_t begin = 0; begin < a.size(); begin += room.size()) {
    const size_t count = std::min(room.size(), a.size() - begin);
    const auto difference = std::span(room).first(count);
    std::copy_n(a.begin() + static_cast<std::ptrdiff_t>(begin), count, difference.begin());
    kernel::add_floats(std::as_bytes(b.subspan(begin, count)), -1.0f, difference);
    const Moments moments = measure(difference);
    sum += moments.finite ? moments.square_sum : kInfinity;
  }
  return sum;
}

class Krum final : public VectorRule {
 public:
  Krum(size_t f, size_t m) : f_(f), m_(m) {}

  size_t least_ranks() const noexcept override { return std::max(2 * f_ + 3, f_ + m_); }
  std::string least_ranks_text() const override {
    return std::string(2 * f_ + 3 >= f_ + m_ ? "2 f + 3" : "f + m") + " = " +
           std::to_string(least_ranks()) + " ranks at least";
  }

  size_t statistics(size_t ranks) const noexcept override { return ranks * (ranks - 1) / 2; }

  void add_statistics(std::span<const float> rows, size_t ranks,
                      std::span<double> statistics) const override {
    const size_t count = rows.size() / ranks;
    size_t pair = 0;
    for (size_t a = 0; a < ranks; ++a)
      for (size_t b = a + 1; b < ranks; ++b)
        statistics[pair++] +=
            square_distance(rows.subspan(a * count, count), rows.subspan(b * count, count));
  }

  void weigh(std::span<const double> statistics, std::span<float> row_weights) const override {
    const size_t ranks = row_weights.size();
    std::vector<std::vector<double>> distances(ranks);  // of each rank to the others
    size_t pair = 0;
    for (size_t a = 0; a < ranks; ++a)
      for (size_t b = a + 1; b < ranks; ++b, ++pair) {
        const double distance = std::isfinite(statistics[pair]) ? statistics[pair] : kInfinity;
        distances[a].push_back(distance);
        distances[b].push_back(distance);
      }
    std::vector<double> scores;
    for (std::vector<double>& of_rank : distances) {
      std::sort(of_rank.begin(), of_rank.end());
      double score = 0;
      for (size_t i = 0; i < ranks - f_ - 2; ++i) score += of_rank[i];
      scores.push_back(score);
    }
    take_least(scores, m_, row_weights);
  }

 private:
  const size_t f_, m_;
};

}  // namespace

extern const CombineEntry kKrum{
    .name = "krum",
    .summary = "the mean of the m ranks whose contributions have the nearest neighbours",
    .options = {{.name = "f",
                 .type = OptionType::kInteger,
                 .fallback = "1",
                 .min = 0,
                 .max = 32765,
                 .unit = "ranks",
                 .help = "ranks that may send anything"},
                {.name = "m",
                 .type = OptionType::kInteger,
                 .fallback = "1",
                 .min = 1,
                 .max = 65534,
                 .unit = "ranks",
                 .help = "ranks whose mean is the result"}},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Krum>(static_cast<size_t>(options.integer("f")),
                                    static_cast<size_t>(options.integer("m")));
    }};

}  // namespace thinwire
