// Holders: which rank of a group exchanges a tensor with the other groups, for its whole group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"
#include "thinwire/stream.h"

namespace thinwire {

// Returns the divisors of a number as choices in an error: "1, 2, 3, 6".
std::string divisors_text(int number);

// Throws Error(kBadOption), naming the choices, unless groups of `inside` ranks make up `ranks`.
void check_groups(int inside, int ranks);

// By tensor, the place in its group, from 0 to inside - 1, of the rank that holds it; the same in
// every group. Tensors that share a stream have one holder. The largest go first, each to the place
// that has the fewest values by then, so that all places have about as many.
std::vector<size_t> choose_holders(const Sections& sections, const std::vector<TensorSpec>& tensors,
                                   size_t inside);

// Whether tensors that share a stream have one holder; throws Error(kBadOption), naming two of
// them, if not.
void check_holders(const Sections& sections, const std::vector<TensorSpec>& tensors,
                   const std::vector<size_t>& holder_of);

// The tensors of one place, and their sections, where tensors are numbered among these alone.
struct Holding {
  std::vector<size_t> tensors;      // by their numbers among all
  std::vector<TensorSpec> specs;    // theirs
  Sections sections;                // those that have any of them
  std::vector<size_t> section_ids;  // of these, among all
};
Holding holding_of(size_t place, const std::vector<size_t>& holder_of, const Sections& sections,
                   const std::vector<TensorSpec>& tensors);

}  // namespace thinwire
