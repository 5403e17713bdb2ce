// The folder to which a run writes, and the checkpoint from which it is resumed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "thinwire/auto_codec.h"
#include "thinwire/group.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/rank_figures.h"
#include "train/signal_recorder.h"

namespace thinwire {

// Of one rank. The first rank alone has metrics, recorded signals and a summary; each has figures
// of its own, and all write checkpoints together.
class RunFiles {
 public:
  // Both must outlive it.
  RunFiles(const Recipe& recipe, const RunPlaces& places) : recipe_(recipe), places_(places) {
    if (writes()) figures_ = std::make_unique<RankFigures>(places.out);
  }

  bool writes() const noexcept { return !places_.out.empty(); }
  bool resumes() const noexcept { return !places_.resume.empty(); }
  const std::string& resumed_from() const noexcept { return places_.resume; }

  // The checkpoint to go on from, the same on all ranks. `note` is told what of the recipe has
  // changed. Throws where the checkpoint is of another recipe. Called by all ranks.
  Checkpoint load(Group& group, const std::function<void(const std::string&)>& note);

  // Whether rank 0 may write into the run's folder, which it makes. Throws Error(kBadOption) where
  // that is a checkpoint. What an earlier run left there stays as it is: this run may still fail to
  // start.
  void check();

  // Once nothing else keeps the run from its first step: removes what an earlier run left, but for
  // what this run goes on with, and starts the files of rank 0, for the steps from `step` on.
  void open(uint64_t step);

  // Goes on with the files of a rank 0 that is lost, after `step` steps. Lines about later ones go:
  // those are done again.
  void take_over(uint64_t step);
  // Another rank does.
  void release() noexcept { metrics_.reset(); }

  MetricsFile* metrics() const noexcept { return metrics_.get(); }  // null where there are none
  RankFigures* figures() const noexcept { return figures_.get(); }  // null where nothing is written
  SignalRecorder* recorder() const noexcept { return recorder_.get(); }  // likewise

  // Whether a checkpoint is to be written after so many steps, and is not there yet.
  bool wants_checkpoint(uint64_t step) const noexcept { return writes() && saved_at_ != step; }

  // Adds the recipe to the checkpoint, writes it and returns its folder. Called by all ranks.
  std::filesystem::path save(Group& group, Checkpoint checkpoint);

  // The checkpoint that was just written is written again, if not all ranks know that it is whole.
  void forget_saved() noexcept { saved_at_ = UINT64_MAX; }

  // OUT/model.safetensors, for weights that no checkpoint has. open removes that of an earlier
  // run's end.
  void write_weights(const StateArrays& model) const;

  // OUT/decisions.txt, which codec "auto:plan=FILE" follows.
  void write_decisions(AllowedLoss loss, const std::vector<AutoDecision>& decisions) const;

  void write_summary(const RunSummary& summary, const RunTotals& totals) const;

 private:
  const Recipe& recipe_;
  const RunPlaces& places_;
  void open_metrics(uint64_t step);

  bool continues_ = false;  // in the folder in which it was saved; the same on all ranks
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<RankFigures> figures_;
  std::unique_ptr<SignalRecorder> recorder_;
  std::optional<uint64_t> others_after_;  // until the first checkpoint of a resumed run
  uint64_t saved_at_ = UINT64_MAX;
};

}  // namespace thinwire
