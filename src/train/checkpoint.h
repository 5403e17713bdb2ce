// Checkpoints: folders that are complete or absent, and are checked before they are used.
//
//   OUT/checkpoint-0000000120/
//     progress.json                        step, ranks, recipe, totals; size and XXH3 of the others
//     model.safetensors                    parameters and buffers under the module's names
//     optimizer.safetensors                what the optimiser remembers
//     model-000.small, model-001.small     in the place of model.safetensors: a chain
//                                          (shrink/small_chain.h)
//     optimizer.small                      in the place of optimizer.safetensors: in 16 bits
//     state-rank-0000-of-0002.safetensors  one rank's store: residuals, encoders, own buffers
//
// It grows under the name OUT/checkpoint-0000000120.tmp and gets its own by one rename, when every
// file and the folder are on the disk; only then is the last but one removed. Ranks on several
// machines need an OUT that all of them see. Where workers come and go, the number of their group
// is in the temporary name, .3.tmp: a worker that the others have left out, and that writes on,
// cannot reach what they write.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/state.h"
#include "train/run_totals.h"
#include "train/small_options.h"
#include "train/small_report.h"

namespace thinwire {

struct Checkpoint {
  uint64_t step = 0;   // steps done: the next one's number, and so the position in the data
  int world_size = 1;  // ranks that wrote it
  // When saved: those of later steps than this that were there before go, as another run's; nothing
  // is kept of a damaged one that this run was resumed from before.
  std::optional<uint64_t> others_after = std::nullopt;
  uint32_t generation =
      0;  // when saved, of the group, where workers come and go: its temporary folder is its own
  std::string recipe;  // agreement text
  RunTotals totals;
  StateArrays model;
  StateArrays optimizer;
  std::optional<SmallSave> small = std::nullopt;  // when saved: the model instead of `model`
  std::string small_from =
      {};  // when loaded: the small model that `model` is from; empty: it is exact
  // When loaded: whether the optimiser's state, where there was one, was rounded or left out.
  SavedOptimizer saved_optimizer = SavedOptimizer::kExact;
  size_t keep = 2;  // when saved: the newest checkpoints that stay
  // When saved: this rank's store alone. When loaded: this rank's alone if as many ranks load as
  // saved, in groups of the same size, else those of all old ranks.
  std::vector<StateArrays> ranks;
};

// Writes a checkpoint below `out` and returns its path. Model, optimiser and the rest are rank 0's.
// Called by all ranks; throws Error(kIo) on all of them when one cannot write, naming the path.
std::filesystem::path save_checkpoint(Group& group, const std::filesystem::path& out,
                                      const Checkpoint& mine);

// Removes what runs that were killed while saving left below `out`. Before a run has workers that
// may save there.
void remove_unfinished_checkpoints(const std::filesystem::path& out);

// Reads the checkpoint `from`, or the newest one in the folder `from`. Called by all ranks; throws
// on all of them: kIo when there is none, kBadLength or kCorrupt naming the file that is truncated,
// damaged or foreign, and the newest checkpoint before it that does not have the same damage.
// `inside` is that of the run that goes on.
Checkpoint load_checkpoint(Group& group, const std::filesystem::path& from, int inside = 1);

// The step, the recipe and the model of the checkpoint in `folder`, checked as load_checkpoint
// does, and nothing else. It needs no group.
Checkpoint load_model(const std::filesystem::path& folder);

// Whether the folder is a checkpoint, whatever its name: one that was copied may have any.
bool is_checkpoint(const std::filesystem::path& folder);

// The complete checkpoints in a folder, oldest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& out);

}  // namespace thinwire
