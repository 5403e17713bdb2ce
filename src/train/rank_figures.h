// RankFigures: what each rank tells those who watch the run, as metrics.jsonl has rank 0's figures
// alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/step_taker.h"

namespace thinwire {

// Writes OUT/ranks/RANK.json about the steps since it was written last: in the first step, then
// about once a second, less often where there are many ranks. The file is never half there. One
// that cannot be written is done without: nothing that the run needs is in it. Rank 0 removes the
// files of ranks that are gone.
class RankFigures {
 public:
  explicit RankFigures(const std::filesystem::path& out);

  // `seconds` are since the run began.
  void add(int rank, int ranks, uint64_t step, double seconds, const StepOutcome& outcome);

 private:
  void write(int rank, uint64_t step) const;
  void remove_from(int rank) const;
  std::filesystem::path path_of(int rank) const;

  std::filesystem::path folder_;
  double next_ = 0;  // in the run's seconds
  int ranks_ = 0;    // in the step before
  uint64_t steps_ = 0;
  // Sums over them.
  double loss_ = 0, fetch_ = 0, compute_ = 0, update_ = 0, wait_ = 0;
};

}  // namespace thinwire
