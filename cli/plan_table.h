// The outcome of thinwire plan: predicted steps of several codecs, ranked, and what follows from
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "thinwire/codec_choice.h"
#include "thinwire/step_plan.h"

namespace thinwire::cli {

// One codec.
struct PlanRow {
  std::string codec;  // as it was asked for
  StepPrediction step;
  bool wants_short_trial = false;  // codec_choice.h; false for local methods and pipelines
  std::vector<KnownAccuracy> accuracy;
};

// Seconds of a step without a hierarchy: of fp32, and of the codec to choose.
struct FlatSteps {
  double dense = 0;
  std::optional<double> best;
};

struct PlanTable {
  std::string name;         // of the recipe or the list
  std::string way;          // "local method diloco:tau=500"; empty: ranks share each step
  std::string measured_by;  // where the seconds of computation come from
  StepTimeline timeline;
  PlanRequest request;
  std::string processor;           // on which codecs were measured
  std::vector<PlanRow> rows;       // the fastest first
  size_t dense = 0;                // row of uncompressed fp32
  std::optional<size_t> best;      // row of the other codec to choose; absent without any
  double break_even = 0;           // bits per second below which that one is worth its trouble
  std::optional<FlatSteps> flat;   // of hierarchies
  std::vector<std::string> notes;  // further lines of text
};

// Ranks the rows, and chooses one other than fp32 (choose_codec).
void rank_rows(PlanTable& plan);

// Whether the chosen codec is worth its trouble.
bool says_compress(const PlanTable& plan);

// "Compress with int8: 3.8x as fast as fp32. ...": what to do, why, and what would change it.
std::string verdict_of(const PlanTable& plan);

// For people: what was planned, the table, the verdict, and what the numbers rest on.
std::string plan_text(const PlanTable& plan);

// For programs.
std::string plan_json(const PlanTable& plan);

// The same of one subject at several numbers of ranks: two tables, times and bytes; and a list of
// plans.
std::string scale_text(const std::vector<PlanTable>& plans);
std::string scale_json(const std::vector<PlanTable>& plans);

}  // namespace thinwire::cli
