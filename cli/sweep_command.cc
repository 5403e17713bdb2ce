// thinwire sweep: makes the runs of one file, each in a process of its own, and one table of their
// results.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>  // program_invocation_name
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/data_option.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/mpirun.h"
#include "cli/number_check.h"
#include "cli/report/page.h"
#include "cli/run_folder.h"
#include "cli/run_list.h"
#include "cli/run_log.h"
#include "cli/sweep_file.h"
#include "cli/sweep_results.h"
#include "cli/sweep_runner.h"
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
  double report_every = 30;
  bool dry = false;
  bool table_only = false;
};

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    throw Error(ErrorCode::kIo, path.string() + ": cannot be written");
}

// What there is already, of this sweep or kept elsewhere.
Job look_up(const SweepArguments& arguments, const SweepRun& run) {
  Job job{.run = &run, .folder = fs::path(arguments.out) / run.name};
  std::vector<fs::path> places = {job.folder / "summary.json"};
  if (!arguments.kept.empty()) places.push_back(fs::path(arguments.kept) / (run.name + ".json"));
  for (const fs::path& place : places) {
    std::string difference;
    if (auto summary = finished_summary(place, run, difference)) {
      job.state = JobState::kDone;
      job.summary = std::move(*summary);
      job.kept = &place != &places.front();
      return job;
    }
    if (!difference.empty())
      fmt::print(stderr, "! {}: is of another recipe ({})\n", place.string(), difference);
  }
  if (is_unfinished(job.folder)) {
    const std::string difference = difference_to_unfinished(job.folder, run.recipe);
    if (difference.empty())
      job.state = JobState::kUnfinished;
    else  // it would end as a run of neither
      fmt::print(stderr, "! {}: the unfinished run is of another recipe ({})\n",
                 job.folder.string(), difference);
  }
  job.failure = RunLog(job.folder / "log.txt").complaint();
  return job;
}

void show_plan(const std::vector<Job>& jobs) {
  for (const Job& job : jobs)
    fmt::print("{:<10}  {}\n",
               job.state == JobState::kDone         ? "done"
               : job.state == JobState::kUnfinished ? "unfinished"
                                                    : "to do",
               job.run->name);
}

// Makes the runs, and lists those that have a folder here. Those that are kept elsewhere have none.
bool make_listed_runs(const SweepArguments& arguments, std::vector<Job>& jobs) {
  std::vector<std::string> names;
  for (const Job& job : jobs)
    if (job.state != JobState::kDone || fs::exists(job.folder)) names.push_back(job.run->name);
  const RunList list(arguments.out, std::move(names));
  return make_runs({arguments.data, arguments.at_once, arguments.report_every}, jobs);
}

// Ends the sweep before its first run where data are missing: each run would fail on its own.
void require_data(const SweepArguments& arguments, const std::vector<Job>& jobs) {
  std::map<std::string, size_t> without;  // runs by the data set that they miss
  std::map<std::string, bool> is_here;
  for (const Job& job : jobs) {
    if (job.state == JobState::kDone) continue;
    const std::string& name = job.run->recipe.options.text("data.name");
    if (!is_here.contains(name)) is_here[name] = missing_data_files(name, arguments.data).empty();
    if (!is_here[name]) ++without[name];
  }
  if (without.empty()) return;
  std::vector<std::string> counts, names;
  for (const auto& [name, runs] : without) {
    counts.push_back(fmt::format("{} for {} of {} runs", name, runs, jobs.size()));
    names.push_back(name);
  }
  const bool given = fs::is_directory(arguments.data);
  throw Error(
      ErrorCode::kIo,
      fmt::format("nothing was run, as data are missing: {}; 'thinwire data {}{}' says "
                  "which files to get and where to put them",
                  join(counts, ", "), join(names, " "), given ? " --data " + arguments.data : ""));
}

void write_tables(const SweepArguments& arguments, const Sweep& sweep,
                  const std::vector<Job>& jobs) {
  std::vector<SweepResult> results;
  std::vector<SweepFailure> failures;
  for (const Job& job : jobs) {
    if (job.state == JobState::kDone)
      results.push_back({job.run, job.summary, job.kept});
    else if (!job.failure.empty())
      failures.push_back({job.run, job.failure});
  }
  if (results.empty() && failures.empty()) return;
  const auto rows = rows_of(sweep, results, failures);
  const Table table = table_of(rows);
  std::string marked, listed;
  for (const std::string& line : failures_of(rows)) {
    marked += fmt::format("  ! {}\n", line);
    listed += fmt::format("\n- {}", line);
  }
  const fs::path out = arguments.out;
  fs::create_directories(out);
  write_file(out / "sweep.md", fmt::format("# {}\n\n{}{}{}", sweep.title, table.markdown(), listed,
                                           listed.empty() ? "" : "\n"));
  write_file(out / "sweep.json", json_of(rows).dump(2) + "\n");
  write_file(out / "sweep.csv", csv_of(results));
  add_report(out, sweep.title);
  fmt::print("{}{}\n  {} of {} runs; ± half the 95 % interval over seeds; files: {}\n",
             table.aligned(), marked, results.size(), jobs.size(), arguments.out);
}

int sweep(SweepArguments arguments) {
  if (mpirun_world())
    throw UsageError(ErrorCode::kUnsupported,
                     "sweep starts processes of its own: run it without mpirun");
  const std::string name = fs::path(arguments.file).stem();
  if (arguments.out.empty()) arguments.out = (fs::path("out") / name).string();
  const Written sets = parse_sets(arguments.sets, recipe_keys());
  or_usage_error(sets.status());
  const Sweep sweep = or_usage_error(read_sweep(arguments.file, sets.settings, recipe_keys()));
  std::vector<Job> jobs;
  for (const SweepRun& run : sweep.runs) jobs.push_back(look_up(arguments, run));
  if (arguments.dry) {
    show_plan(jobs);
    return kExitOk;
  }
  if (!arguments.table_only) {
    require_data(arguments, jobs);
    fmt::print(stderr, "{}: {} runs, {} at once, in {}\n",
               styled(look_at(stderr), Style::kBold, sweep.title), jobs.size(), arguments.at_once,
               arguments.out);
  }
  const bool well = arguments.table_only || make_listed_runs(arguments, jobs);
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
  command->add_option("FILE", arguments->file, "A TOML file of variants: docs/sweeps.md")
      ->required();
  add_data_option(*command, arguments->data);
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
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command
      ->add_option("--report-every", arguments->report_every,
                   "Seconds between two lines about each run under way")
      ->default_val(30)
      ->check(number_between(0.1, 86400.0))
      ->type_name("SECONDS");
  command->add_flag("--dry-run", arguments->dry, "List the runs and what is done; make none");
  command->add_flag("--table-only", arguments->table_only,
                    "The table of what is done; make no runs");
  command->callback([arguments, &exit_code] {
    watch_interrupts();
    exit_code = sweep(*arguments);
  });
}

}  // namespace thinwire::cli
