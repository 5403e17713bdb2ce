// Contributions: the buffers in which an owner collects the ranks' values, as their sum or as one
// row per rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "exchange/rules/combine.h"

namespace thinwire {

// The contributions to some values, as far as a rule needs them: their sum, or a row for each rank.
// Memory is made once, for the most values. One thread at a time.
class Contributions {
 public:
  Contributions(const Combine& rule, size_t ranks, size_t most);

  // Starts with `count` values from each of `participants` ranks, -0.0 everywhere: the one value
  // that adds to any other without changing a bit of it. REQUIRES: count <= most.
  void begin(size_t count, size_t participants);

  // Where the contribution of the next participant is added. They come in the order of ranks.
  std::span<float> next() noexcept;

  // The same for those that come in any order: the row of participant `index`.
  std::span<float> row(size_t index) noexcept;

  // After the last rank: goes on with the rows of those participants that are true, and with
  // `rule`, until the next begin. REQUIRES: rows; `rule` is of the same kind as the one given.
  void combine_only(const std::vector<bool>& participants, const Combine& rule);

  // After the last rank, and after combine_only: where what the rule remembers of these values of
  // the last step is copied before the statistics. Empty if it remembers nothing.
  std::span<float> remembered() noexcept;

  // After the last rank: what these values add to the statistics. REQUIRES: a VectorRule.
  void add_statistics(std::span<double> statistics) const;

  // After the last rank: what the rule makes of them, until the next begin. `row_weights` are those
  // of a VectorRule, whose result takes the place of the first row.
  std::span<float> combine(std::span<const float> row_weights = {});

  // Before combine: forms what the rule remembers of these values. REQUIRES: Remembers::kOwn.
  void next_remembered(std::span<float> next) const;

 private:
  std::span<const float> all_rows() const noexcept;  // with the one that is remembered

  const Combine& usual_;
  const Combine* rule_;
  const size_t ranks_;
  const size_t remembered_rows_;
  size_t count_ = 0;
  size_t participants_ = 0;
  size_t next_ = 0;
  AlignedVector<float> rows_;
  AlignedVector<float> result_;  // of rules that want rows, and weigh none
};

}  // namespace thinwire
