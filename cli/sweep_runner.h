// Makes the runs of a sweep, each in a process of its own, and reports their progress.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/sweep_file.h"

namespace thinwire::cli {

enum class JobState { kToDo, kUnfinished, kDone };

// One run of the sweep and what is known of it.
struct Job {
  const SweepRun* run = nullptr;
  std::filesystem::path folder;
  JobState state = JobState::kToDo;
  nlohmann::json summary = {};  // of a run that is done
  bool kept = false;            // it is of --kept
  std::string failure = {};     // why it failed when it was made last; empty if it did not
};

struct RunnerOptions {
  std::string data;          // the folder of --data; runs find it by themselves where it is none
  int at_once = 1;           // runs beside each other
  double report_every = 30;  // seconds between two lines about each run under way
};

// Makes all jobs that are not done, first to last. Whether all ended well: one that fails leaves
// the others alone, a stop that the user asks for is for all. Lines about them go to stderr.
bool make_runs(const RunnerOptions& options, std::vector<Job>& jobs);

}  // namespace thinwire::cli
