// Starts the processes of a sweep's runs, watches them, and reports.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "cli/child_process.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/run_folder.h"
#include "cli/run_log.h"
#include "cli/sweep_results.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Running {
  Job* job;
  RunLog log;
  ChildProcess process;
  Clock::time_point began = Clock::now();
  Clock::time_point reported = began;

  double seconds() const { return std::chrono::duration<double>(Clock::now() - began).count(); }
};

class Runner {
 public:
  Runner(const RunnerOptions& options, std::vector<Job>& jobs)
      : options_(options), jobs_(jobs), terminal_(look_at(stderr)) {}

  bool make_runs();

 private:
  void start(Job& job);
  void collect();
  bool ended_well(const Running& running, int code);
  bool failed(const Running& running, int code);
  void report();
  std::string place_of(const Job& job) const;  // "[3/12] sparse-seed1"

  const RunnerOptions& options_;
  std::vector<Job>& jobs_;
  Terminal terminal_;
  std::vector<Running> running_;
  bool told_ = false;  // to stop
  bool failed_ = false;
};

std::string Runner::place_of(const Job& job) const {
  return fmt::format("[{}/{}] {}", &job - jobs_.data() + 1, jobs_.size(), job.run->name);
}

void Runner::start(Job& job) {
  std::error_code error;
  fs::create_directories(job.folder, error);
  if (error) throw Error(ErrorCode::kIo, job.folder.string() + ": " + error.message());
  std::vector<std::string> words = {
      "train",     job.run->recipe_path,
      "--out",     job.folder.string(),
      "--workers", std::to_string(job.run->recipe.options.integer("run.workers"))};
  if (fs::is_directory(options_.data, error))  // the default need not be there
    words.insert(words.end(), {"--data", options_.data});
  const bool goes_on = job.state == JobState::kUnfinished;
  if (!goes_on && is_unfinished(job.folder)) remove_unfinished(job.folder);  // of another recipe
  if (goes_on) words.insert(words.end(), {"--resume", job.folder.string()});
  for (const Setting& change : job.run->changes)
    words.insert(words.end(), {"--set", change.key + "=" + change.value});
  job.failure.clear();
  const fs::path log = job.folder / "log.txt";
  running_.push_back({&job, RunLog::beginning(log), ChildProcess(words, log.string())});
  fmt::print(stderr, "{}: seed {}, {}\n", place_of(job), job.run->seed,
             goes_on ? "goes on" : "begins");
}

bool Runner::failed(const Running& running, int code) {
  Job& job = *running.job;
  const std::string complaint = running.log.complaint();
  job.failure =
      complaint.empty() ? fmt::format("exit {}: {}", code, running.log.last_line()) : complaint;
  fmt::print(stderr, "{} {}: exit {}: {}\n  ({})\n", styled(terminal_, Style::kRed, "!"),
             job.run->name, code, running.log.last_line(), running.log.path().string());
  return false;
}

bool Runner::ended_well(const Running& running, int code) {
  Job& job = *running.job;
  std::string difference;
  auto summary = finished_summary(job.folder / "summary.json", *job.run, difference);
  if (code == kExitStopped) {
    fmt::print(stderr, "{}: stopped after {}\n", place_of(job), duration(running.seconds()));
    return stop_requested();
  }
  if (code != kExitOk || !summary) return failed(running, code);
  job.state = JobState::kDone;
  job.summary = std::move(*summary);
  const auto done = std::count_if(jobs_.begin(), jobs_.end(),
                                  [](const Job& one) { return one.state == JobState::kDone; });
  fmt::print(stderr, "{}: error {}, {}; {} of {} done\n", place_of(job),
             percent(job.summary.value("final_test_error", 1.0)), duration(running.seconds()), done,
             jobs_.size());
  return true;
}

void Runner::collect() {
  for (size_t i = 0; i < running_.size();) {
    const auto code = running_[i].process.ended();
    if (!code) {
      ++i;
      continue;
    }
    failed_ |= !ended_well(running_[i], *code);
    std::vector<Running> others;
    for (size_t j = 0; j < running_.size(); ++j)
      if (j != i) others.push_back(std::move(running_[j]));
    running_ = std::move(others);
  }
}

void Runner::report() {
  const auto pause = std::chrono::duration<double>(options_.report_every);
  for (Running& one : running_) {
    if (Clock::now() - one.reported < pause) continue;
    one.reported = Clock::now();
    const std::string progress = one.log.progress();
    fmt::print(stderr, "{}: seed {}, {}, {}\n", place_of(*one.job), one.job->run->seed,
               duration(one.seconds()), progress.empty() ? "no figures yet" : progress);
  }
}

bool Runner::make_runs() {
  auto next = jobs_.begin();
  while (true) {
    collect();
    if (stop_requested() && !std::exchange(told_, true))
      for (Running& one : running_) one.process.interrupt();
    while (next != jobs_.end() && next->state == JobState::kDone) ++next;
    const bool more = next != jobs_.end() && !stop_requested();
    if (more && running_.size() < static_cast<size_t>(options_.at_once)) {
      start(*next++);
      continue;
    }
    if (!more && running_.empty()) return !failed_;
    report();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

bool make_runs(const RunnerOptions& options, std::vector<Job>& jobs) {
  return Runner(options, jobs).make_runs();
}

}  // namespace thinwire::cli
