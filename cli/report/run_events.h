// RunEvents: what happened in a run besides its steps, as the report lists it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace thinwire::cli {

class RunEvents {
 public:
  // What the line of this step says of skipped steps and rounds, of ranks that were left out, and
  // of workers that were lost or joined.
  void add_step(uint64_t step, const nlohmann::json& line);

  // Line `row` of metrics.jsonl, counted from 1, is of no step or test.
  void add_unreadable(size_t row);
  void add(uint64_t step, std::string what);

  // Adds the keys skipped, skipped_rounds, events and more_events, the number of those that are not
  // listed. `steps` are those of the run.
  void write(nlohmann::json& run, uint64_t steps) const;

 private:
  void add_skipped(uint64_t step, const nlohmann::json& fault);
  void add_skipped_round(uint64_t step, const nlohmann::json& round);
  // Lists one more of a kind of which `listed` were told, or counts it where `most` were.
  void add_bounded(uint64_t& listed, uint64_t most, uint64_t step, std::string what);

  uint64_t skipped_ = 0;
  uint64_t skipped_rounds_ = 0;
  uint64_t skips_listed_ = 0;
  uint64_t others_listed_ = 0;
  uint64_t more_ = 0;
  size_t unreadable_ = 0;
  size_t first_unreadable_ = 0;
  std::map<int64_t, std::map<std::string, uint64_t>> left_out_;  // steps, by rank and reason
  nlohmann::json events_ = nlohmann::json::array();
};

// How many ranks the line of a step names as left out, for faults or by the rule's choice.
size_t ranks_left_out(const nlohmann::json& line);

}  // namespace thinwire::cli
