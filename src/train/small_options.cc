// Reads checkpoint.compress, and checks it against the rest of the recipe.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_options.h"

#include <string>
#include <vector>

#include "core/named_row.h"
#include "shrink/small_chain.h"

namespace thinwire {
namespace {

struct CompressRow {
  std::string_view name;
  std::vector<OptionInfo> options;
};

const std::vector<CompressRow>& rows() {
  using enum OptionType;
  static const std::vector<CompressRow> all = {
      {"exact", {}},
      {"quantised",
       {{.name = "tolerance",
         .type = kNumber,
         .fallback = "0.01",
         .min = 0,
         .max = 10,
         .unit = "fraction",
         .help = "rise of the loss on held-out samples that is allowed"},
        {.name = "samples",
         .type = kInteger,
         .fallback = "1000",
         .min = 0,
         .max = 1 << 30,
         .unit = "samples",
         .help = "held-out samples that the loss is measured on; 0: all"},
        {.name = "search_every",
         .type = kInteger,
         .fallback = "5",
         .min = 1,
         .max = 1 << 20,
         .unit = "checkpoints",
         .help = "look for another setting after every so many"},
        {.name = "trials",
         .type = kInteger,
         .fallback = "48",
         .min = 1,
         .max = 1 << 20,
         .help = "settings that a search measures at most"},
        {.name = "deltas",
         .type = kInteger,
         .fallback = "9",
         .min = 0,
         .max = static_cast<double>(kLongestChain - 1),
         .unit = "files",
         .help = "files in a row that hold changes since the one before; 0: each stands alone"},
        {.name = "optimizer",
         .type = kChoice,
         .fallback = "exact",
         .choices = {"exact", "half", "none"},
         .help = "the optimiser's state: exact, in 16 bits, or left out"}}}};
  return all;
}

}  // namespace

Result<std::optional<SmallOptions>> parse_small_options(std::string_view text) {
  auto found = find_named_row(rows(), "checkpoint.compress", text);
  if (!found) return found.status();
  std::optional<SmallOptions> none;
  if (found.value().row->name == "exact") return none;
  const Options& given = found.value().options;
  const std::string& optimizer = given.text("optimizer");
  return std::optional<SmallOptions>(
      SmallOptions{.tolerance = given.number("tolerance"),
                   .samples = static_cast<uint64_t>(given.integer("samples")),
                   .search_every = static_cast<uint64_t>(given.integer("search_every")),
                   .deltas = static_cast<size_t>(given.integer("deltas")),
                   .trials = static_cast<int>(given.integer("trials")),
                   .optimizer = optimizer == "exact"  ? SavedOptimizer::kExact
                                : optimizer == "half" ? SavedOptimizer::kHalf
                                                      : SavedOptimizer::kNone});
}

Status check_small_options(const Options& recipe) {
  auto parsed = parse_small_options(recipe.text("checkpoint.compress"));
  if (!parsed) return parsed.status();
  if (!parsed.value()) return Status::ok();
  if (!recipe.text("sync.method").empty())
    return Status::fail(ErrorCode::kUnsupported,
                        "workers that step by themselves are resumed from weights of their own, "
                        "which stay exact; use exact");
  if (recipe.integer("pipeline.stages") > 0 && parsed.value()->optimizer != SavedOptimizer::kExact)
    return Status::fail(ErrorCode::kUnsupported,
                        "every stage of a pipeline keeps its optimiser in a state of its own, "
                        "which stays exact; use optimizer=exact");
  if (recipe.integer("tensor.ranks") > 0 && parsed.value()->optimizer != SavedOptimizer::kExact)
    return Status::fail(ErrorCode::kUnsupported,
                        "every rank of tensor.ranks keeps its optimiser in a state of its own, "
                        "which stays exact; use optimizer=exact");
  return Status::ok();
}

}  // namespace thinwire
