// checkpoint.compress of a recipe: how small checkpoints are to be, and what of them stays exact.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "thinwire/options.h"
#include "thinwire/status.h"

namespace thinwire {

// What a checkpoint has of the optimiser's state.
enum class SavedOptimizer : uint8_t { kExact, kHalf, kNone };

struct SmallOptions {
  double tolerance = 0.01;    // share of the loss on held-out samples by which it may rise
  uint64_t samples = 1000;    // held-out samples that it is measured on; 0: all
  uint64_t search_every = 5;  // checkpoints between two searches
  size_t deltas = 9;          // files in a row that follow another one
  int trials = 48;            // settings that a search measures at most
  SavedOptimizer optimizer = SavedOptimizer::kExact;
};

// Reads "exact", which gives none, or "quantised:tolerance=0.01,optimizer=half". Fails with the
// known names, options and ranges.
Result<std::optional<SmallOptions>> parse_small_options(std::string_view text);

// Fails where a recipe cannot have small checkpoints.
Status check_small_options(const Options& recipe);

}  // namespace thinwire
