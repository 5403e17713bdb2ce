// FollowedRun: a run that may still go on, as far as its files tell.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/watch/newest.h"

namespace thinwire::cli {

// Reads metrics.jsonl from where it stopped the time before, so that a look costs what was added
// since. Not shared between threads.
class FollowedRun {
 public:
  explicit FollowedRun(std::filesystem::path folder);

  // Reads what the run wrote since the last call. A file that does not hold any more what was read
  // of it is read again from its start: the run was resumed from an earlier step, or begun again.
  void update();

  struct Step {
    uint64_t step = 0;
    double epoch = 0;
    double loss = 0;
    double seconds = 0;  // since the run began
    double sent_bytes = 0;
    double dense_bytes = 0;
    double fetch = 0, compute = 0, wait = 0, update = 0;  // seconds of this step
    std::optional<double> kept_over_target;
  };

  // Texts are printable, whatever the files and folders hold.
  const std::string& name() const noexcept { return name_; }
  const std::string& codec() const noexcept { return codec_; }    // as the recipe has it
  const std::string& method() const noexcept { return method_; }  // sync.method, if that is set
  uint64_t steps() const noexcept { return steps_; }
  const std::deque<Step>& recent() const noexcept { return recent_; }  // the last 200 steps at most
  const std::vector<double>& losses() const noexcept {
    return losses_;
  }  // a few means over the whole run
  std::optional<double> error() const noexcept {
    return error_;
  }  // held out, if there is such; else of the test
  std::optional<double> best_error() const noexcept { return best_error_; }
  uint64_t skipped() const noexcept { return skipped_; }
  const Newest& newest() const noexcept { return newest_; }
  // Of each rank; empty where there is one only.
  const std::vector<RankFigures>& ranks() const noexcept { return ranks_; }
  bool finished() const noexcept { return finished_; }

  // The part that is done, 0 to 1; empty if the recipe is not there.
  std::optional<double> done() const;
  // At the speed of the recent steps; empty where these have none.
  std::optional<double> seconds_left() const;
  std::optional<double> seconds_per_step() const;
  // Since the file grew last.
  double silent_seconds() const;

 private:
  void restart();
  void read_line(const std::string& text);
  void read_step(uint64_t step, const nlohmann::json& line);
  void read_test(const nlohmann::json& line);
  void add_loss(double loss);
  void read_recipe_of_run();
  void read_added();

  std::filesystem::path folder_;
  std::string name_;
  std::string codec_;
  std::string method_;
  double epochs_ = 0;
  double most_steps_ = 0;
  bool has_recipe_ = false;
  bool finished_ = false;

  uint64_t offset_ = 0;
  std::string tail_;  // the last bytes before offset_
  std::string rest_;  // the start of a line that was not complete
  uint64_t steps_ = 0;
  std::deque<Step> recent_;
  std::vector<double> losses_;
  uint64_t in_last_loss_ = 0;  // steps that the last of losses_ is the mean of
  uint64_t per_loss_ = 1;      // and of every other
  std::optional<double> error_, best_error_;
  uint64_t skipped_ = 0;
  Newest newest_;
  std::vector<RankFigures> ranks_;
};

}  // namespace thinwire::cli
