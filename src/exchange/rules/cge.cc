// cge: comparative gradient elimination [Gupta, Liu and Vaidya, arXiv:2008.04699; Liu, Gupta and
// Vaidya, PODC 2021].
//
//   1. N_i = |x_i|^2, over all values of rank i; one that is not finite counts as infinite
//   2. the f ranks of largest N_i are left out; of equal ones, those of higher rank
//   3. result = the mean of the n - f others; the paper takes their sum
//
// It needs n >= 2 f + 1: as many honest ranks as others at least, and one more. Statistics: n
// squared norms, which cost one read of every row. A hostile rank whose norm is like that of the
// others passes, a change of sign for example. A rank that is left out loses its contribution: its
// memory keeps what its codec lost, and not what the rule leaves out.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

class Cge final : public VectorRule {
 public:
  explicit Cge(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kSquareNorms; }

  void weigh(std::span<const double> statistics, const RuleCall& /*call*/,
             std::span<float> row_weights) const override {
    take_least(statistics, row_weights.size() - f_, row_weights);
  }

 private:
  const size_t f_;
};

}  // namespace

extern const CombineEntry kCge{
    .name = "cge",
    .summary = "the mean of all but the f ranks whose contributions have the largest norms",
    .options = {faulty_ranks_option("ranks that are left out", 32766)},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Cge>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
