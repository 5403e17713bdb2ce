// Rules by which the contributions of all ranks become one result, and the table of rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/status.h"

namespace thinwire {

class VectorRule;

// How many ranks must take part in a step at least, and why: 3 and "2 f + 1".
struct LeastRanks {
  size_t count = 1;
  std::string_view formula = {};
};

// A rule, without state. Safe to call from any thread.
//
// A rule sees some values at a time. Most decide by these alone. Those that choose among whole
// vectors are a VectorRule (vector_rule.h).
class Combine {
 public:
  virtual ~Combine() = default;

  // Whether it must see the contribution of each rank by itself. The others are given the sum over
  // ranks, in fp32 and in rank order, which takes no memory for n contributions.
  virtual bool wants_rows() const noexcept = 0;

  // `rows` is the contributions of the `ranks` ranks that take part in the step, one after another
  // in the order of ranks, each as long as `result`; or the sum alone, which may be `result`
  // itself, and `ranks` is all ranks: the ranks' weights are in the contributions then
  // (attendance.h). `row_weights` is for a VectorRule: what it gave each row; others get none. What
  // such a rule remembers from step to step is one row more.
  // REQUIRES: finite values; ranks >= least_ranks().count.
  virtual void combine(std::span<const float> rows, size_t ranks,
                       std::span<const float> row_weights, std::span<float> result) const = 0;

  virtual LeastRanks least_ranks() const noexcept { return {}; }

  // How many ranks may take part at most, of rules whose work grows too fast with them.
  virtual size_t most_ranks() const noexcept { return SIZE_MAX; }

  // How many of `ranks` ranks may send anything: f. REQUIRES: ranks >= least_ranks().count.
  virtual size_t tolerates(size_t ranks) const noexcept = 0;

  // The same rule, if it chooses among whole vectors; else null.
  virtual const VectorRule* over_vectors() const noexcept { return nullptr; }
};

struct CombineEntry {
  std::string_view name;  // what users type
  std::string_view summary;
  std::vector<OptionInfo> options = {};
  std::shared_ptr<const Combine> (*make)(const Options& options) = nullptr;
};

// The option that most rules have: f, the number of ranks that may send anything.
OptionInfo faulty_ranks_option(std::string_view help, double most = 32765);

// All rules, mean first.
std::span<const CombineEntry* const> list_combines() noexcept;

// "mean, majority, median, ...": the names of those that decide by some values alone.
std::string names_of_value_rules();

// A rule, and the text that selects it with every option spelt out.
struct NamedCombine {
  std::shared_ptr<const Combine> rule;
  std::string canonical;
};

// The rule that `text` names, for example "median" or "cge:f=1", perhaps after mixes (mix.h),
// "nnm:f=1 then median". Errors name what is known.
//
// With `excused` of the f faulty ranks known and left out of the rows, it is the rule for the
// others: f of the rule and of its mixes is smaller by as many.
Result<NamedCombine> make_combine(std::string_view text, size_t excused = 0);

// The rule of exchanges that only add.
const Combine& mean_of_ranks() noexcept;

// What the rule needs, and does not find at so many ranks: "combine = cge:f=1 needs 2 f + 1 = 3
// ranks at least". Empty if these are enough, and not too many.
std::string lack_of_ranks(const NamedCombine& combine, size_t ranks);

}  // namespace thinwire
