// Trainer: trains from a recipe, with models, data, optimisers and the exchange. It does not
// include libtorch.
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
#include "thinwire/members.h"
#include "thinwire/options.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// All keys that a recipe may have, as "section.key" ("train.epochs"), with defaults and meanings.
std::span<const OptionInfo> recipe_keys();

// A recipe with checked keys. Ranks must agree on `options.canonical()`.
struct Recipe {
  std::string name;
  Options options;
};

// A mistake in the combination of a recipe's keys, as far as it can be found before data are read
// and ranks have met. Examples are a method that does not support the codec, or a setting that the
// model or the data set does not have.
struct RecipeFault {
  std::string key;  // the key to blame
  Status status;
};

// Finds all such mistakes. A check that reads one of the sections `unsure` ("model") is left out: a
// key of that section was refused, so the intended value is unknown.
std::vector<RecipeFault> find_faults(const Options& recipe,
                                     std::span<const std::string> unsure = {});

// The folders in which a run reads and writes.
struct RunPlaces {
  std::string data;  // folder with data sets; thinwire's own are always found
  std::string out;   // metrics.jsonl, summary.json, recipe.toml, checkpoints; empty: write nothing
  std::string resume;  // the `out` of an earlier run; empty: start afresh
  bool tensorboard =
      false;  // event files for TensorBoard in `out`, with the numbers of metrics.jsonl
};

// The tensors that crossed the boundaries of a pipeline in one step, all micro-batches and replicas
// together. The report is the same on every rank. With tensor.ranks: what ranks summed, by pair of
// matrices; each message counts once for each rank that it is sent to.
struct PipelineReport {
  struct Direction {
    uint64_t values = 0;         // of the activations; of these, not of codes, if they are encoded
    uint64_t payload_bytes = 0;  // the codec's
    uint64_t message_bytes = 0;  // with frames and heads
    uint64_t full = 0;           // samples that were sent in full, for the first time (aqsgd)
  };
  struct Boundary {
    std::string name;  // of the last layer before it; or of the pair, "block1.attention"
    Direction forward, backward;
  };
  std::vector<Boundary> boundaries;
  double idle_share = 0;    // share of all stages' time spent in waiting for other stages
  bool warming_up = false;  // nothing was compressed
  // Of a decoupled step, absent in others: (beta / 2) |activation - auxiliary variable|^2, over all
  // boundaries, the mean of its samples. The loss of such a step is that of the last stage for its
  // auxiliary variables.
  std::optional<double> penalty = std::nullopt;
};

// One optimiser step on this rank. The loss is this rank's own; for a pipeline it is that of all
// replicas.
struct StepEvent {
  uint64_t step = 0;   // steps done, this one included
  uint64_t steps = 0;  // in the whole run
  double epoch = 0;    // with fraction
  double loss = 0;
  double learning_rate = 0;
  uint64_t samples = 0;  // seen by all ranks so far
  double seconds = 0;    // since training began
  const StepReport* exchange = nullptr;
  const RoundReport* round = nullptr;  // if workers step by themselves and this step had a round
  const PipelineReport* pipeline = nullptr;
  std::vector<LostWorker> lost = {};  // losses that rank 0 learned of since the step before
  std::vector<int> joined = {};       // with run.elastic: workers that came since the step before
  int ranks = 0;                      // of the group, if it is another one than in the step before
  std::vector<AutoDecision> decisions = {};  // of codec "auto" before this step
};

// One pass over the test data. It is the same on every rank.
struct EvaluationEvent {
  uint64_t step = 0;
  double epoch = 0;
  double loss = 0;   // mean
  double error = 1;  // fraction of wrong predictions
  uint64_t samples = 0;
  std::optional<double> hold_out_error = {};  // on training samples that were held out

  // If workers step by themselves, the members above belong to the network that they have in
  // common: the method's centre, or the mean of all workers, with batch norm measured again.
  std::optional<double> spread = {};        // root mean square distance of workers to that network
  std::optional<int> leader = {};           // of the last global round, for methods with leaders
  std::optional<double> leader_error = {};  // of the leader's own network
  std::optional<double> leader_hold_out_error = {};

  // For asynchronous workers before the end, all members belong to the leader of the last global
  // round, and rank 0 measures them. This is the round.
  std::optional<uint64_t> round = {};

  // For pipelines and tensor.ranks the members above are without compression. These are with the
  // codecs of boundaries or sums, without memory.
  std::optional<double> compressed_loss = {};
  std::optional<double> compressed_error = {};
  std::optional<double> compressed_hold_out_error = {};
};

struct RunEvents {
  std::function<void(const StepEvent&)> step;
  std::function<void(const EvaluationEvent&)> evaluation;
  std::function<void(std::string_view)> note;  // resumed, redistributed, skipped a step: one line
  std::function<bool()> stop;  // called after each step on rank 0; true: checkpoint and end early
};

// What memories still owed at the end of a run (exchange.flush), and the test errors before and
// after a step of the weights that sends all of it. docs/training.md, The end of a run, defines it.
struct FlushReport {
  struct Test {
    double error = 1;
    double loss = 0;
    std::optional<double> hold_out_error = {};
  };
  bool applied = false;       // the run's weights are those after the step
  double learning_rate = 0;   // of the run's last step, and of this one
  double owed_norm = 0;       // l2 norm of the mean over ranks of what memories owed
  double gradient_norm = 0;   // of the mean gradient of the last batch, uncompressed
  double delivered_norm = 0;  // of the mean that the last step which counted delivered
  Test before = {}, after = {};
};

// The results of a run. summary.json has them, and more.
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
  // Means over steps, per rank, with frames; for pipelines also the mean over ranks.
  double dense_bytes_per_step = 0;
  double sent_bytes_per_step = 0;
  uint64_t peak_sent_bytes = 0;       // of rank 0 in the step that sent most; not a mean
  double inside_bytes_per_step = 0;   // with exchange.inside: the part that stays in a group
  double between_bytes_per_step = 0;  // the other part
  double codec_ratio = 1;             // 4d / payload bytes of one rank
  double wire_ratio = 1;              // dense bytes / sent bytes; 1 for one rank
  double achieved_over_target = 0;    // kept / target; 0 if the codec has no target
  double seconds = 0;
  uint64_t skipped_steps = 0;
  std::optional<FlushReport> flush;
  std::vector<int>
      lost_workers;  // ranks without which the others went on; with run.elastic, numbers of workers
  std::vector<int> joined_workers;  // with run.elastic
  double lost_debt = 0;  // with run.elastic: the l2 norm of what the memories of lost workers owed
  uint64_t weights_xxh3 = 0;  // of names and contents of all weights at the end
  bool finished = true;       // false: stopped early, can be resumed
};

// Trains as the recipe says, as one rank of the group. All ranks return the same summary, except
// for times. Throws Error: kMismatch if ranks differ (naming the first difference), kIo for files,
// and the errors of the exchange and the group. A rank that fails while the others go on without it
// throws SurvivedError.
RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Group& group,
                        const RunEvents& events);

// The same for a run whose workers come and go, with run.elastic; train_task with Members
// (thinwire/torch.h) says more.
RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Members& members,
                        const RunEvents& events);

// The input of one encoder in one step of a run with run.record_every.
struct RecordedSignal {
  StreamSpec stream;
  std::vector<float> values;
  std::vector<float> fresh;  // the step's own part; empty if it equals the values
};

struct RecordedStep {
  uint64_t step = 0;
  std::vector<RecordedSignal> signals;
};

// Calls `each` for every step recorded in `folder` (the run's out/signals), in order, and returns
// their number. Throws Error: kIo if there are none, kCorrupt for a file that is not a recorded
// step, by name.
uint64_t read_recorded_steps(const std::string& folder,
                             const std::function<void(const RecordedStep&)>& each);

// What expand_checkpoint read and wrote.
struct ExpandedModel {
  std::string from;  // the file
  uint64_t arrays = 0;
  uint64_t saved_bytes = 0;  // of that file and the files that it follows
  uint64_t expanded_bytes = 0;
};

// Throws Error(kBadOption) where a file at `path` would take the place of a file of a run or a
// checkpoint, or would be read in the place of one. Everything that is written where a user says is
// checked by it.
void protect_saved_files(const std::string& path);

// How a result gets to its file: a file that is there is written anew, or a new one takes its
// place.
enum class Writing : uint8_t { kInPlace, kReplaces };

// As protect_saved_files, and throws Error(kIo) where no file can be written in this way: the
// folder is missing, or may not be written to, or the file may not. Call it before the work whose
// result goes there.
void check_output(const std::string& path, Writing how);

// Writes the weights of a checkpoint, small or exact, as the safetensors file `to`. `from` is a
// run's folder, a checkpoint's, or a file of one. Throws Error: kIo; naming a file, kBadLength or
// kCorrupt if it is damaged, kUnsupported for another version, kMismatch without those that it
// follows; kBadOption as check_output, and where `to` is `from`. It needs no group.
ExpandedModel expand_checkpoint(const std::string& from, const std::string& to);

// A data set that thinwire reads, and its origin.
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

// Looks for the files of `name` under `data_folder` and in the places where systems install it, and
// verifies their checksums. Throws Error(kUnknownName) with the known names.
DataSetState check_data_set(std::string_view name, const std::string& data_folder);

// The files of `name` that are in none of those places. No file is read. Throws
// Error(kUnknownName).
std::vector<std::string> missing_data_files(std::string_view name, const std::string& data_folder);

// The existing folders in which data sets are searched after the user's.
std::vector<std::string> shared_data_folders();

}  // namespace thinwire
