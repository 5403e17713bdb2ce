// The results of a sweep's runs: which are done, and one table of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/sweep_file.h"
#include "cli/table.h"

namespace thinwire::cli {

// The run's summary.json at `path`, if it is of a finished run. Empty where there is none;
// `difference` names the first setting in which a finished run's recipe is not this one
// ("train.epochs: 3 before, 5 now"), and there is none then either.
std::optional<nlohmann::json> finished_summary(const std::string& path, const SweepRun& run,
                                               std::string& difference);

// Mean and spread of what was measured several times.
struct Measured {
  size_t count = 0;
  double mean = 0;
  std::optional<double> half_interval;  // of the mean, 95 % (Student's t); from two values on
};

// Of no values, count and mean are 0.
Measured mean_and_interval(const std::vector<double>& values);

// A finished run of the sweep.
struct SweepResult {
  const SweepRun* run = nullptr;
  nlohmann::json summary;
  bool kept = false;  // of --kept, and not of the sweep's own folder
};

// A run that was made and failed.
struct SweepFailure {
  const SweepRun* run = nullptr;
  std::string reason;  // its last words
};

// The runs of one case and variant, over seeds.
struct SweepRow {
  std::string of_case;
  std::string variant;
  std::vector<std::string> runs;  // the names of those that finished
  std::vector<std::string> kept;  // of them, those whose summary is of --kept
  std::vector<int64_t> seeds;     // theirs
  std::vector<SweepFailure> failures = {};
  std::vector<std::pair<std::string, Measured>> errors;  // "final_test_error", and others like it
  std::vector<std::pair<std::string, Measured>> differences;  // by seed
  Measured sent_bytes_per_step;
  Measured wire_ratio;
  Measured codec_ratio;
  Measured seconds;
};

// In the order of the sweep; rows none of whose runs finished or failed are left out. A figure is
// measured over the runs that have it; where none has, or all failed, its count is 0.
std::vector<SweepRow> rows_of(const Sweep& sweep, const std::vector<SweepResult>& results,
                              const std::vector<SweepFailure>& failures = {});

// Rows with failed runs are marked so beside the number of seeds that count.
Table table_of(const std::vector<SweepRow>& rows);

// Why runs failed: a line for each row and reason, "sparse, 2 failed (sparse-seed1, sparse-seed2):
// out of memory".
std::vector<std::string> failures_of(const std::vector<SweepRow>& rows);

nlohmann::ordered_json json_of(const std::vector<SweepRow>& rows);

// One line per run, with every number of its summary that is not a total.
std::string csv_of(const std::vector<SweepResult>& results);

}  // namespace thinwire::cli
