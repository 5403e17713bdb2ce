// How the contributions of all ranks to the same values become one result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "core/aligned.h"

namespace thinwire {

// A rule, without state. Safe to call from any thread.
//
// A rule sees some values at a time, and decides by them alone. Rules that choose among whole
// vectors, such as Krum [Blanchard et al., NeurIPS 2017], would need a round of small numbers in
// addition: for each chunk an owner forms the n (n - 1) / 2 squared distances between rows, in
// double; after its last chunk it sends the sums to all ranks in one sealed message of 4 n (n - 1)
// bytes; every rank adds them in the order of owners, so that all come to the same n weights; then
// rows are combined with these. The price is that an owner keeps the rows of all its chunks until
// then, n times its shard, and hands nothing out before the last contribution has arrived: the
// bound on chunks under way would have to be the words of scatter-reduce's shards.
class Combine {
 public:
  virtual ~Combine() = default;

  // Whether it must see the contribution of each rank by itself. The others are given the sum over
  // ranks, in fp32 and in rank order, which takes no memory for n contributions.
  virtual bool wants_rows() const noexcept = 0;

  // `rows` is the contributions of the `ranks` ranks that take part in the step, one after another
  // in the order of ranks, each as long as `result`; or the sum alone, which may be `result`
  // itself, and `ranks` is all ranks: weights are in the contributions then (attendance.h).
  // REQUIRES: finite values.
  virtual void combine(std::span<const float> rows, size_t ranks,
                       std::span<float> result) const = 0;
};

struct CombineEntry {
  std::string_view name;  // what users type
  std::string_view summary;
  const Combine& (*rule)();
};

// All rules, mean first.
std::span<const CombineEntry* const> list_combines() noexcept;

// Null: there is none of this name.
const Combine* find_combine(std::string_view name) noexcept;

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

  // After the last rank: what the rule makes of them, until the next begin.
  std::span<float> combine();

 private:
  const Combine& rule_;
  const size_t ranks_;
  size_t count_ = 0;
  size_t participants_ = 0;
  size_t next_ = 0;
  AlignedVector<float> rows_;
  AlignedVector<float> result_;  // of rules that want rows
};

}  // namespace thinwire
