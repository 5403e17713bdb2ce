// Training from a recipe: models, data, optimisers and the exchange put together. No libtorch in
// sight.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// Every key a recipe may have, as "section.key" ("train.epochs"), with its default and meaning.
std::span<const OptionInfo> recipe_keys();

// A recipe whose keys are all checked. `options.canonical()` is what ranks must agree on.
struct Recipe {
  std::string name;
  Options options;
};

// What is wrong with a recipe's keys together, as far as that can be said before data are read and ranks
// have met: a method that does not carry the codec, a setting that the model or the data set does not have.
struct RecipeFault {
  std::string key;  // the one to blame
  Status status;
};

// All that is wrong with it. A check that reads one of the sections `unsure` ("model") is left out: what was meant
// there is not known, as a key of it was refused.
std::vector<RecipeFault> find_faults(const Options& recipe,
                                     std::span<const std::string> unsure = {});

// Where a run reads and writes.
struct RunPlaces {
  std::string data;  // folder with data sets; thinwire's own ones are found besides
  std::string out;   // metrics.jsonl, summary.json, recipe.toml, checkpoints; empty: write nothing
  std::string resume;  // an earlier run's out; empty: start afresh
};

// What crossed the boundaries of a pipeline in one step, all micro-batches and replicas together; the
// same on every rank.
struct PipelineReport {
  struct Direction {
    uint64_t values = 0;
    uint64_t payload_bytes = 0;  // the codec's
    uint64_t message_bytes = 0;  // with frames and heads
    uint64_t full = 0;           // samples that went in full, for the first time (aqsgd)
  };
  struct Boundary {
    std::string name;  // of the last layer in front of it
    Direction forward, backward;
  };
  std::vector<Boundary> boundaries;
  double idle_share = 0;    // of all stages' time, spent in waiting for other stages
  bool warming_up = false;  // nothing was compressed
};

// One optimiser step on this rank. The loss is this rank's own; of a pipeline, that of all replicas.
struct StepEvent {
  uint64_t step = 0;   // steps done, this one included
  uint64_t steps = 0;  // in the whole run
  double epoch = 0;    // with fraction
  double loss = 0;
  double learning_rate = 0;
  uint64_t samples = 0;  // seen by all ranks so far
  double seconds = 0;    // since training began
  const StepReport* exchange = nullptr;
  const RoundReport* round = nullptr;  // where workers step by themselves and just talked
  const PipelineReport* pipeline = nullptr;
  std::vector<LostWorker> lost = {};  // that rank 0 heard of since the step before
};

// One pass over the test data, the same on every rank.
struct EvaluationEvent {
  uint64_t step = 0;
  double epoch = 0;
  double loss = 0;   // mean
  double error = 1;  // fraction of wrong predictions
  uint64_t samples = 0;
  std::optional<double> hold_out_error = {};  // on training samples that were held out

  // Where workers step by themselves the above is of what they have in common: the method's centre, or
  // the mean of all workers, with batch norm measured anew.
  std::optional<double> spread = {};        // root mean square distance of workers to it
  std::optional<int> leader = {};           // of the last global round; where one is chosen
  std::optional<double> leader_error = {};  // of the leader's own network
  std::optional<double> leader_hold_out_error = {};

  // Of asynchronous workers before the end all of it is of the leader of the last global round, as rank
  // 0 measures it: that round.
  std::optional<uint64_t> round = {};

  // Of pipelines the above is without compression. This is with the boundaries' codecs, without memory.
  std::optional<double> compressed_loss = {};
  std::optional<double> compressed_error = {};
  std::optional<double> compressed_hold_out_error = {};
};

struct RunEvents {
  std::function<void(const StepEvent&)> step;
  std::function<void(const EvaluationEvent&)> evaluation;
  std::function<void(std::string_view)> note;  // resumed, redistributed, skipped a step: one line
  std::function<bool()> stop;  // asked after each step on rank 0; true: checkpoint and end early
};

// What a run came to; summary.json holds it, and more.
struct RunSummary {
  std::string recipe;
  int world_size = 1;
  std::string codec;  // canonical
  uint64_t steps = 0;
  uint64_t samples = 0;  // seen by all ranks
  double final_test_error = 1;
  double best_test_error = 1;
  double final_test_loss = 0;
  std::optional<double> final_hold_out_error;
  std::optional<double> final_compressed_test_error;  // of pipelines, as in EvaluationEvent
  std::optional<double> final_compressed_test_loss;
  std::optional<double> final_compressed_hold_out_error;
  double dense_bytes_per_step =
      0;  // means over steps; per rank, frames included; of pipelines, the
          // mean of the ranks
  double sent_bytes_per_step = 0;
  double codec_ratio = 1;           // 4d / payload bytes of one rank
  double wire_ratio = 1;            // dense bytes / sent bytes; 1 for one rank
  double achieved_over_target = 0;  // kept / target; 0 when the codec has no target
  double seconds = 0;
  uint64_t skipped_steps = 0;
  std::vector<int> lost_workers;  // ranks that the others went on without
  uint64_t weights_xxh3 = 0;      // of names and contents of all weights at the end
  bool finished = true;           // false: stopped early, to be resumed
};

// Trains as the recipe says, as one rank of the group. All ranks return the same summary, but for
// times. Throws Error: kMismatch when ranks differ (naming the first difference), kIo for files,
// and whatever the exchange and the group throw; SurvivedError on a rank that fails where the others
// go on without it.
RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Group& group,
                        const RunEvents& events);

// What one encoder was given in one step of a run with run.record_every.
struct RecordedSignal {
  StreamSpec stream;
  std::vector<float> values;
  std::vector<float> fresh;  // the step's own part; empty when it is the values
};

struct RecordedStep {
  uint64_t step = 0;
  std::vector<RecordedSignal> signals;
};

// Calls `each` for every step recorded in `folder` (the run's out/signals), in order, and returns
// how many there are. Throws Error: kIo when there are none, kCorrupt naming a file that is not one.
uint64_t read_recorded_steps(const std::string& folder,
                             const std::function<void(const RecordedStep&)>& each);

// A data set that thinwire reads, and where one gets it.
struct DataSetInfo {
  std::string name;
  std::string about;   // items, classes, size
  std::string origin;  // who published it, and where
  std::string terms;
  std::vector<std::string> files;  // below the data folder
};

struct DataSetState {
  bool ready = false;                 // every file is there and has the published checksum
  std::string folder;                 // where it was found
  std::vector<std::string> problems;  // "train-images-idx3-ubyte.gz: missing", one per file
};

std::vector<DataSetInfo> list_data_sets();

// Looks for the files of `name` under `data_folder` and the places where systems install it, and
// verifies their checksums. Throws Error(kUnknownName) with the known names.
DataSetState check_data_set(std::string_view name, const std::string& data_folder);

// The files of `name` that are in none of those places; none is read. Throws Error(kUnknownName).
std::vector<std::string> missing_data_files(std::string_view name, const std::string& data_folder);

// The folders below which data sets are looked for after the user's; those that exist.
std::vector<std::string> shared_data_folders();

}  // namespace thinwire
