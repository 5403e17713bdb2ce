// thinwire sweep: the runs of one file, each in a process of its own, and one table of what they came to.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>  // program_invocation_name
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/mpirun.h"
#include "cli/run_folder.h"
#include "cli/sweep_file.h"
#include "cli/sweep_results.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct SweepArguments {
  std::string file;
  std::string data;
  std::string out;
  std::string kept;
  std::vector<std::string> sets;
  int at_once = 1;
  bool dry = false;
  bool table_only = false;
};

enum class State { kToDo, kUnfinished, kDone };

struct Job {
  const SweepRun* run = nullptr;
  fs::path folder;
  State state = State::kToDo;
  nlohmann::json summary = {};
};

struct Running {
  Job* job;
  ChildProcess process;
  std::chrono::steady_clock::time_point began;
};

std::string last_line(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be written");
}

// Makes the runs that are to be made.
class Runner {
 public:
  Runner(const SweepArguments& arguments, std::vector<Job>& jobs)
      : arguments_(arguments), jobs_(jobs), terminal_(look_at(stderr)) {}

  // Whether all ended well. Those that failed leave the others alone; a stop is for all.
  bool make_runs();

 private:
  void start(Job& job);
  void collect();
  bool ended_well(const Running& running, int code);

  const SweepArguments& arguments_;
  std::vector<Job>& jobs_;
  Terminal terminal_;
  std::vector<Running> running_;
  bool told_ = false;  // to stop
  bool failed_ = false;
};

void Runner::start(Job& job) {
  std::error_code error;
  fs::create_directories(job.folder, error);
  if (error) throw Error(ErrorCode::kIo, job.folder.string() + ": " + error.message());
  std::vector<std::string> words = {
      "train",     job.run->recipe_path,
      "--data",    arguments_.data,
      "--out",     job.folder.string(),
      "--workers", std::to_string(job.run->recipe.options.integer("run.workers"))};
  // With another recipe than it was cut off with, it says so and ends.
  if (job.state == State::kUnfinished) words.insert(words.end(), {"--resume", job.folder.string()});
  for (const Setting& change : job.run->changes)
    words.insert(words.end(), {"--set", change.key + "=" + change.value});
  running_.push_back({&job, ChildProcess(words, (job.folder / "log.txt").string()),
                      std::chrono::steady_clock::now()});
}

bool Runner::ended_well(const Running& running, int code) {
  Job& job = *running.job;
  const std::string& name = job.run->name;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - running.began;
  std::string difference;
  auto summary = finished_summary(job.folder / "summary.json", *job.run, difference);
  if (code == kExitOk && summary) {
    job.state = State::kDone;
    job.summary = std::move(*summary);
    const auto done = std::count_if(jobs_.begin(), jobs_.end(),
                                    [](const Job& one) { return one.state == State::kDone; });
    fmt::print(stderr, "[{}/{}] {}: error {}, {}\n", done, jobs_.size(), name,
               percent(job.summary.value("final_test_error", 1.0)), duration(took.count()));
    return true;
  }
  if (code == kExitStopped) {
    fmt::print(stderr, "{}: stopped after {}\n", name, duration(took.count()));
    return stop_requested();
  }
  fmt::print(stderr, "{} {}: exit {}: {}\n  ({})\n", styled(terminal_, Style::kRed, "!"), name,
             code, last_line(job.folder / "log.txt"), (job.folder / "log.txt").string());
  return false;
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

bool Runner::make_runs() {
  auto next = jobs_.begin();
  while (true) {
    collect();
    if (stop_requested() && !std::exchange(told_, true))
      for (Running& one : running_) one.process.interrupt();
    while (next != jobs_.end() && next->state == State::kDone) ++next;
    const bool more = next != jobs_.end() && !stop_requested();
    if (more && running_.size() < static_cast<size_t>(arguments_.at_once)) {
      start(*next++);
      continue;
    }
    if (!more && running_.empty()) return !failed_;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// What there is already, of this sweep or kept elsewhere.
Job look_up(const SweepArguments& arguments, const SweepRun& run) {
  Job job{.run = &run, .folder = fs::path(arguments.out) / run.name};
  std::vector<fs::path> places = {job.folder / "summary.json"};
  if (!arguments.kept.empty()) places.push_back(fs::path(arguments.kept) / (run.name + ".json"));
  for (const fs::path& place : places) {
    std::string difference;
    if (auto summary = finished_summary(place, run, difference)) {
      job.state = State::kDone;
      job.summary = std::move(*summary);
      return job;
    }
    if (!difference.empty())
      fmt::print(stderr, "! {}: is of another recipe ({})\n", place.string(), difference);
  }
  if (is_unfinished(job.folder)) job.state = State::kUnfinished;
  return job;
}

std::vector<Setting> parse_sets(const std::vector<std::string>& sets) {
  std::vector<Setting> settings;
  for (const std::string& set : sets)
    settings.push_back(or_usage_error(parse_set(set, recipe_keys())));
  return settings;
}

void show_plan(const std::vector<Job>& jobs) {
  for (const Job& job : jobs)
    fmt::print("{:<10}  {}\n",
               job.state == State::kDone         ? "done"
               : job.state == State::kUnfinished ? "unfinished"
                                                 : "to do",
               job.run->name);
}

void write_tables(const SweepArguments& arguments, const Sweep& sweep,
                  const std::vector<Job>& jobs) {
  std::vector<SweepResult> results;
  for (const Job& job : jobs)
    if (job.state == State::kDone) results.push_back({job.run, job.summary});
  if (results.empty()) return;
  const auto rows = rows_of(sweep, results);
  const Table table = table_of(rows);
  const fs::path out = arguments.out;
  fs::create_directories(out);
  write_file(out / "sweep.md", fmt::format("# {}\n\n{}", sweep.title, table.markdown()));
  write_file(out / "sweep.json", json_of(rows).dump(2) + "\n");
  write_file(out / "sweep.csv", csv_of(results));
  fmt::print("{}\n  {} of {} runs; ± half the 95 % interval over seeds; files: {}\n",
             table.aligned(), results.size(), jobs.size(), arguments.out);
}

int sweep(SweepArguments arguments) {
  if (mpirun_world())
    throw UsageError(ErrorCode::kUnsupported,
                     "sweep starts processes of its own: run it without mpirun");
  const std::string name = fs::path(arguments.file).stem();
  if (arguments.out.empty()) arguments.out = (fs::path("out") / name).string();
  const Sweep sweep =
      or_usage_error(read_sweep(arguments.file, parse_sets(arguments.sets), recipe_keys()));
  std::vector<Job> jobs;
  for (const SweepRun& run : sweep.runs) jobs.push_back(look_up(arguments, run));
  if (arguments.dry) {
    show_plan(jobs);
    return kExitOk;
  }
  if (!arguments.table_only)
    fmt::print(stderr, "{}: {} runs, {} at once, in {}\n",
               styled(look_at(stderr), Style::kBold, sweep.title), jobs.size(), arguments.at_once,
               arguments.out);
  const bool well = arguments.table_only || Runner(arguments, jobs).make_runs();
  write_tables(arguments, sweep, jobs);
  if (stop_requested()) {
    fmt::print(stderr, "go on with the same command: {} sweep {} --out {}\n",
               program_invocation_name, arguments.file, arguments.out);
    return kExitStopped;
  }
  return well ? kExitOk : kExitFailed;
}

}  // namespace

void add_sweep_command(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<SweepArguments>();
  CLI::App* command =
      program.add_subcommand("sweep", "Train variants of recipes over seeds: one table");
  command->add_option("FILE", arguments->file, "A TOML file of variants: docs/training.md")
      ->required();
  command->add_option("--data", arguments->data, "Folder with data sets")
      ->default_val("data")
      ->envname("THINWIRE_DATA")
      ->type_name("DIR");
  command
      ->add_option("--out", arguments->out,
                   "Folder of the runs and the table; else out/ and the\nfile's name")
      ->type_name("DIR");
  command
      ->add_option(
          "--kept", arguments->kept,
          "Folder with summaries of finished runs, RUN.json, that\nare not to be made again")
      ->type_name("DIR");
  command->add_option("--set", arguments->sets, "Change a key in all runs; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--at-once", arguments->at_once, "Runs beside each other")
      ->default_val(1)
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command->add_flag("--dry-run", arguments->dry, "List the runs and what is done; make none");
  command->add_flag("--table-only", arguments->table_only,
                    "The table of what is done; make no runs");
  command->callback([arguments, &exit_code] {
    watch_interrupts();
    exit_code = sweep(*arguments);
  });
}

}  // namespace thinwire::cli
