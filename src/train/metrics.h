// The folder of a run and its files: metrics.jsonl, recipe.toml, summary.json. Rank 0's business.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "thinwire/trainer.h"
#include "train/event_file.h"
#include "train/run_totals.h"

namespace thinwire {

// Makes the folder, and looks whether a run may write into it: not if it is a checkpoint
// (Error(kBadOption)), nor, unless the run is `continuing` in it, in the place of a run that could
// still be resumed (Error(kIo)). Removes nothing.
void check_out(const std::filesystem::path& out, bool continuing);

// Removes what a run must not find in its folder: results of an earlier one, which would be taken
// for its own. Of a run that does not continue there, that is all but what no run wrote.
void clear_out(const std::filesystem::path& out, bool continuing);

// Appends a line per step and per test. Lines are JSON objects; "step" counts steps done. Who
// follows the file sees a line a second after the step at most, or after the next step if that
// takes longer.
class MetricsFile {
 public:
  // Keeps the lines of an existing file up to `resumed_step`, drops the rest: steps done again are
  // not there twice. With `events`, the numbers of each line are also written for TensorBoard, to a
  // file of their own beside. Throws Error(kIo).
  MetricsFile(const std::filesystem::path& path, uint64_t resumed_step, bool with_streams,
              bool events);

  void step(const StepEvent& event, const StepTimes& times, const Kinds& kinds,
            const std::vector<StreamSpec>& streams);
  void evaluation(const EvaluationEvent& event);

  // From now on, instead of once a second.
  void flush_every_line() noexcept { at_once_ = true; }

  // To the file, so that others can read it; and to the disk.
  void flush();
  void sync();

 private:
  void line(const std::string& json);
  bool new_codecs(const StepReport& report);

  std::filesystem::path path_;
  std::ofstream file_;
  std::optional<EventFile> events_;
  bool with_streams_;
  bool at_once_ = false;
  double flushed_at_ = 0;            // in the run's seconds
  std::vector<std::string> codecs_;  // of the streams in the last step
};

// Everything known about the run: the fields of RunSummary, totals, kinds, machine, version and the
// whole recipe. Written whole or not at all.
void write_summary(const std::filesystem::path& path, const RunSummary& summary,
                   const RunTotals& totals, const Recipe& recipe);

}  // namespace thinwire
