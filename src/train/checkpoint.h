// Checkpoints: folders that are complete or absent, and are checked before they are used.
//
//   OUT/checkpoint-0000000120/
//     progress.json                        step, ranks, recipe, totals; size and XXH3 of the others
//     model.safetensors                    parameters and buffers under the module's names
//     optimizer.safetensors                what the optimiser remembers
//     state-rank-0000-of-0002.safetensors  one rank's store: residuals, encoders, own buffers
//
// It grows under the name OUT/checkpoint-0000000120.tmp and gets its own by one rename, when every
// file and the folder are on the disk; only then is the last but one removed. Ranks on several
// machines need an OUT that all of them see.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"
#include "train/run_totals.h"

namespace thinwire {

struct Checkpoint {
  uint64_t step = 0;   // steps done: the next one's number, and so the position in the data
  int world_size = 1;  // ranks that wrote it
  // When saved: those of later steps than this that were there before go, as another run's; nothing is
  // kept of a damaged one that this run was resumed from before.
  std::optional<uint64_t> others_after = std::nullopt;
  std::string recipe;  // agreement text
  RunTotals totals;
  StateArrays model;
  StateArrays optimizer;
  // When saved: this rank's store alone. When loaded: this rank's alone if as many ranks load as
  // saved, in groups of the same size, else those of all old ranks.
  std::vector<StateArrays> ranks;
};

// Writes a checkpoint below `out` and returns its path. Model, optimiser and the rest are rank 0's.
// Called by all ranks; throws Error(kIo) on all of them when one cannot write, naming the path.
std::filesystem::path save_checkpoint(Group& group, const std::filesystem::path& out,
                                      const Checkpoint& mine);

// Reads the checkpoint `from`, or the newest one in the folder `from`. Called by all ranks; throws
// on all of them: kIo when there is none, kBadLength or kCorrupt naming the file that is truncated,
// damaged or foreign, and the checkpoint before it. `inside` is that of the run that goes on.
Checkpoint load_checkpoint(Group& group, const std::filesystem::path& from, int inside = 1);

// The complete checkpoints in a folder, oldest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& out);

}  // namespace thinwire
