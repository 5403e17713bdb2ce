// Reads the lines that were added to metrics.jsonl, and whether summary.json speaks of the same
// run.
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/followed_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "cli/json_value.h"
#include "cli/recipe_file.h"
#include "cli/report/reported_run.h"
#include "cli/text.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kRecent = 200;
constexpr size_t kLosses = 64;  // then each two become one
constexpr size_t kTail = 256;   // bytes; lines have times of many digits, no two alike

}  // namespace

FollowedRun::FollowedRun(fs::path folder)
    : folder_(std::move(folder)), name_(printable(folder_name(folder_))) {
  update();
}

void FollowedRun::restart() {
  offset_ = 0;
  tail_.clear();
  rest_.clear();
  steps_ = 0;
  recent_.clear();
  losses_.clear();
  in_last_loss_ = 0;
  per_loss_ = 1;
  error_.reset();
  best_error_.reset();
  skipped_ = 0;
  newest_ = {};
  codec_.clear();  // the new run may be of another recipe
  method_.clear();
  epochs_ = 0;
  most_steps_ = 0;
  has_recipe_ = false;
}

void FollowedRun::update() {
  read_added();
  ranks_ = rank_figures(folder_);
  if (!has_recipe_) read_recipe_of_run();
  std::ifstream file(folder_ / "summary.json");
  const Json summary = file ? Json::parse(file, nullptr, /*allow_exceptions=*/false) : Json();
  // A summary of fewer steps is of a run before this one.
  finished_ =
      is_true(summary, "finished") && number(summary, "steps") >= static_cast<double>(steps_);
}

// The size alone does not tell whether the file is another one: that may have grown past the old
// one's end since the last look.
void FollowedRun::read_added() {
  std::ifstream file(folder_ / "metrics.jsonl", std::ios::binary);
  if (!file) return;
  std::string before(tail_.size(), '\0');
  file.seekg(static_cast<std::streamoff>(offset_ - tail_.size()));
  file.read(before.data(), static_cast<std::streamsize>(before.size()));
  if (!file || before != tail_) {
    restart();
    file.clear();
    file.seekg(0);
  }
  const std::string added((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  offset_ += added.size();
  tail_ += added;
  tail_.erase(0, tail_.size() - std::min(tail_.size(), kTail));
  rest_ += added;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    read_line(rest_.substr(begin, end - begin));
  rest_.erase(0, begin);
}

void FollowedRun::read_recipe_of_run() {
  const fs::path path = folder_ / "recipe.toml";
  std::error_code error;
  if (!fs::exists(path, error)) return;
  has_recipe_ = true;
  for (const Setting& setting : read_recipe(path.string(), recipe_keys()).settings) {
    if (setting.key == "train.epochs") epochs_ = std::atof(setting.value.c_str());
    if (setting.key == "train.max_steps") most_steps_ = std::atof(setting.value.c_str());
    if (setting.key == "exchange.codec") codec_ = printable(setting.value);
    if (setting.key == "sync.method") method_ = printable(setting.value);
  }
}

// What is no line of a step or test is left to `thinwire report` to complain of.
void FollowedRun::read_line(const std::string& text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::optional<uint64_t> step = step_of(line);
  if (!step) return;
  line.contains("test_error") ? read_test(line) : read_step(*step, line);
}

void FollowedRun::read_step(uint64_t step, const Json& line) {
  const Json& times = object(line, "times");
  const double kept = number(line, "kept_over_target", -1);
  if (step < steps_) recent_.clear();  // steps before it say nothing of the speed of those after it
  steps_ = step;
  recent_.push_back({.step = steps_,
                     .epoch = number(line, "epoch"),
                     .loss = number(line, "loss", NAN),
                     .seconds = number(line, "seconds"),
                     .sent_bytes = number(line, "sent_bytes"),
                     .dense_bytes = number(line, "dense_bytes"),
                     .fetch = number(times, "fetch"),
                     .compute = number(times, "compute"),
                     .wait = number(times, "wait"),
                     .update = number(times, "update"),
                     .kept_over_target = kept < 0 ? std::nullopt : std::optional(kept)});
  if (recent_.size() > kRecent) recent_.pop_front();
  add_loss(recent_.back().loss);
  skipped_ += is_true(line, "skipped");
  newest_.add(step, line);
}

void FollowedRun::add_loss(double loss) {
  if (!std::isfinite(loss)) return;
  if (losses_.empty() || in_last_loss_ == per_loss_) {
    if (losses_.size() == kLosses) {
      for (size_t i = 0; i < kLosses / 2; ++i)
        losses_[i] = (losses_[2 * i] + losses_[2 * i + 1]) / 2;
      losses_.resize(kLosses / 2);
      per_loss_ *= 2;
    }
    losses_.push_back(0);
    in_last_loss_ = 0;
  }
  ++in_last_loss_;
  losses_.back() += (loss - losses_.back()) / static_cast<double>(in_last_loss_);
}

void FollowedRun::read_test(const Json& line) {
  const double error = number(line, "hold_out_error", number(line, "test_error", NAN));
  if (!std::isfinite(error)) return;
  error_ = error;
  best_error_ = std::min(best_error_.value_or(error), error);
}

std::optional<double> FollowedRun::done() const {
  if (finished_) return 1.0;
  if (recent_.empty() || (epochs_ <= 0 && most_steps_ <= 0)) return std::nullopt;
  const double by_epochs = epochs_ > 0 ? recent_.back().epoch / epochs_ : 0;
  const double by_steps = most_steps_ > 0 ? static_cast<double>(steps_) / most_steps_ : 0;
  return std::clamp(std::max(by_epochs, by_steps), 0.0, 1.0);
}

std::optional<double> FollowedRun::seconds_left() const {
  const std::optional<double> part = done();
  const std::optional<double> per_step = seconds_per_step();
  if (!part || *part <= 0 || !per_step) return std::nullopt;
  const double steps = static_cast<double>(steps_) / *part;
  return std::max(0.0, *per_step * (steps - static_cast<double>(steps_)));
}

std::optional<double> FollowedRun::seconds_per_step() const {
  if (recent_.size() < 2) return std::nullopt;
  const Step &from = recent_.front(), &to = recent_.back();
  if (to.step <= from.step || to.seconds < from.seconds) return std::nullopt;
  return (to.seconds - from.seconds) / static_cast<double>(to.step - from.step);
}

double FollowedRun::silent_seconds() const {
  std::error_code error;
  const auto written = fs::last_write_time(folder_ / "metrics.jsonl", error);
  if (error) return 0;
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
}

}  // namespace thinwire::cli
