// Mix: the interface of mixes (nnm, bucketing, clip), which replace the ranks' vectors by weighted
// sums before a rule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/rules/combine.h"
#include "exchange/rules/vector_rule.h"
#include "thinwire/options.h"

namespace thinwire {

// Every row of a mix is a weighted sum of the ranks' rows. The weights follow from the products of
// these (row_statistics.h). Without state; safe to call from any thread.
class Mix {
 public:
  virtual ~Mix() = default;

  // The rows that n rows become.
  virtual size_t rows(size_t ranks) const noexcept { return ranks; }

  // What a rule that needs `count` rows, because of `formula`, needs with this mix before it.
  struct Need {
    size_t count;
    std::string formula;
  };
  virtual Need needs(const Need& of_rule) const = 0;

  // How many ranks may send anything, as far as the mix cares.
  virtual size_t tolerates() const noexcept { return SIZE_MAX; }

  // weights[row * ranks + rank]: what each rank counts in each row. Products
  // may be infinite, if an owner is hostile.
  virtual void mix(const PairTable& products, const RuleCall& call,
                   std::span<float> weights) const = 0;
};

struct MixEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<OptionInfo> options = {};
  std::shared_ptr<const Mix> (*make)(const Options& options) = nullptr;
};

std::span<const MixEntry* const> list_mixes() noexcept;

// |sum of u_i x_i|^2 by the products of the x_i. At least 0; infinite where it is not a number.
double square_norm_of_sum(const PairTable& products, std::span<const double> u) noexcept;

// The rule that gives what `mix` makes of the ranks' rows to `rule`.
std::shared_ptr<const Combine> make_mixed_rule(std::shared_ptr<const Mix> mix,
                                               std::shared_ptr<const Combine> rule);

}  // namespace thinwire
