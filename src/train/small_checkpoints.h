// Chooses what becomes of each weight tensor in a small checkpoint, by the loss on held-out
// samples, and makes the file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shrink/small_model.h"
#include "shrink/treatments.h"
#include "thinwire/group.h"
#include "thinwire/torch.h"
#include "train/checkpoint.h"
#include "train/named_tensors.h"
#include "train/small_options.h"

namespace thinwire {

// Of one rank. Every rank searches alike, and they share the samples.
class SmallCheckpoints {
 public:
  // All must outlive it. `batch` and `seed` are those of tests.
  SmallCheckpoints(const SmallOptions& options, const Task& task, const Dataset& hold_out,
                   uint64_t batch, uint64_t seed);
  ~SmallCheckpoints();

  // Makes the small model of rank 0's checkpoint. The weights in the module are those to be saved,
  // the same on all ranks; they are changed meanwhile and put back, also where it throws. Called by
  // all ranks; all throw where one cannot code its file.
  void shrink(Group& group, Checkpoint& to);

  // Where the last checkpoint was written; on rank 0.
  void saved_in(const std::filesystem::path& folder) { last_folder_ = folder; }

 private:
  struct Tensor;

  void collect();
  double loss(Group& group);
  void choose(Group& group, SmallReport& report);
  void show(const Setting& setting);
  void show_exact();
  void write(bool first, Checkpoint& to, SmallReport report);

  const SmallOptions options_;
  const Task& task_;
  const Dataset& hold_out_;
  const uint64_t batch_;
  const FetchContext context_;

  std::vector<Tensor> tensors_;  // that may be divided into clusters
  Setting shown_;                // of each, what the module has
  Setting last_;                 // of the checkpoint before; empty: none
  uint64_t checkpoints_ = 0;     // since the last search

  SmallModel model_;  // of the checkpoint before; clusters of ranks but 0 have centres alone
  std::vector<SmallChainFile> chain_;
  std::filesystem::path last_folder_;
};

}  // namespace thinwire
