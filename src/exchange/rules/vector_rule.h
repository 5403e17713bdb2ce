// VectorRule: a rule that chooses among whole vectors, by statistics that all ranks agree on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exchange/rules/combine.h"
#include "exchange/rules/row_statistics.h"

namespace thinwire {

// What weights may depend on besides statistics: the number of rows, and the step, for what is
// drawn. Alike on all ranks.
struct RuleCall {
  size_t ranks = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
};

// What a rule remembers of a step for the next one, on every rank (remembered_row.h).
enum class Remembers : uint8_t {
  kNothing,
  kResult,  // what all ranks were given
  kOwn,     // what it forms of the contributions by next_remembered: every rank must have them all
};

// The weights of the ranks' vectors follow from statistics, which are sums over values, such as
// squared norms. So everybody who has some values of all vectors can add what these contribute, and
// nobody needs whole vectors. A statistics round (statistics_round.h) puts the sums together. The
// result is the weighted sum of the vectors, unless a rule makes more of weights and vectors.
//
// A rule that remembers something finds it as one row more, after those of the ranks.
class VectorRule : public Combine {
 public:
  bool wants_rows() const noexcept final { return true; }
  const VectorRule* over_vectors() const noexcept final { return this; }

  virtual Remembers remembers() const noexcept { return Remembers::kNothing; }
  size_t remembered_rows() const noexcept { return remembers() == Remembers::kNothing ? 0 : 1; }

  // Every value that is remembered before the first step.
  virtual float first_remembered() const noexcept { return 0; }

  // Of kOwn: forms what is remembered of this step. `rows` is as for combine.
  virtual void next_remembered(std::span<const float> /*rows*/, size_t /*ranks*/,
                               std::span<float> /*next*/) const {}

  // The weighted sum of `ranks` rows, in fp32 and in their order. `result` may be the first row.
  void combine(std::span<const float> rows, size_t ranks, std::span<const float> row_weights,
               std::span<float> result) const override;

  // What the statistics are, of the ranks' rows and the one that is remembered.
  virtual RowStatistics decides_by() const noexcept = 0;

  // The number of statistics for `ranks` ranks.
  virtual size_t statistics(size_t ranks) const noexcept {
    return count_statistics(decides_by(), ranks + remembered_rows());
  }

  // Adds what some values contribute; `rows` is as for combine.
  virtual void add_statistics(std::span<const float> rows, size_t ranks,
                              std::span<double> statistics) const {
    add_statistics_of(decides_by(), rows, ranks + remembered_rows(), statistics);
  }

  // The weights for `ranks` rows: one for each, unless a rule has more to say.
  virtual size_t weights(size_t ranks) const noexcept { return ranks; }

  // The weights, by statistics of all values. These may be anything, NaN included: an owner may be
  // hostile. REQUIRES: row_weights.size() == weights(call.ranks); call.ranks >=
  // least_ranks().count.
  virtual void weigh(std::span<const double> statistics, const RuleCall& call,
                     std::span<float> row_weights) const = 0;

  // Whether the weights leave nothing of the vector of rank `rank`, of `ranks`.
  virtual bool leaves_out(size_t rank, size_t /*ranks*/, std::span<const float> row_weights) const {
    return row_weights[rank] == 0;
  }

 protected:
  // The rows of the `count` least scores weigh 1/count each, the others 0. A score that is not
  // finite counts as infinite; of equal ones, that of the lower rank counts as smaller.
  static void take_least(std::span<const double> scores, size_t count,
                         std::span<float> row_weights);
};

}  // namespace thinwire
