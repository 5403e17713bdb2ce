// The names that runs and checkpoints give to their files. What a user may name is compared with
// them (output_file.cc), so that a new file of a run or checkpoint belongs here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace thinwire {

// Of a checkpoint, whose files checkpoint.h describes; small models are named by
// shrink/small_chain.h.
inline constexpr const char* kManifestName = "progress.json";
inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer.safetensors";
inline constexpr const char* kSmallOptimizerName = "optimizer.small";
inline constexpr std::string_view kRankPrefix =
    "state-rank-";  // "-of-" and the number of ranks follow
inline constexpr std::string_view kCheckpointPrefix = "checkpoint-";

// Of a run's folder.
inline constexpr const char* kRecipeName = "recipe.toml";
inline constexpr const char* kMetricsName = "metrics.jsonl";
inline constexpr const char* kSummaryName = "summary.json";
inline constexpr const char* kDecisionsName = "decisions.txt";
inline constexpr const char* kLogName = "log.txt";        // a sweep's, of what a run printed
inline constexpr const char* kSignalsFolder = "signals";  // of run.record_every
inline constexpr const char* kRanksFolder = "ranks";      // of figures of each rank

// "12.json": of rank 12.
inline bool is_rank_figures(std::string_view name) {
  return name.ends_with(".json") && name.find_first_not_of("0123456789") == name.size() - 5;
}

// "step-00000120.safetensors": what codecs were given in step 120.
inline constexpr std::string_view kSignalsPrefix = "step-";
inline constexpr std::string_view kSignalsSuffix = ".safetensors";
inline bool is_signals_name(std::string_view name) {
  if (!name.starts_with(kSignalsPrefix) || !name.ends_with(kSignalsSuffix)) return false;
  name.remove_prefix(kSignalsPrefix.size());
  return name.find_first_not_of("0123456789") == name.size() - kSignalsSuffix.size() &&
         name.size() > kSignalsSuffix.size();
}

// "checkpoint-0000000120": a folder that holds one.
inline bool is_checkpoint_name(std::string_view name) {
  if (!name.starts_with(kCheckpointPrefix)) return false;
  name.remove_prefix(kCheckpointPrefix.size());
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

}  // namespace thinwire
