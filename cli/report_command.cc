// thinwire report: what runs came to, and how they got there, as one HTML page.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/report/page.h"
#include "cli/report/reported_run.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> folders;
  std::string out;
  std::string title;
};

void report(const ReportArguments& arguments) {
  std::vector<fs::path> runs;
  std::set<fs::path> seen;
  for (const std::string& folder : arguments.folders)
    for (const fs::path& run : runs_in(folder))
      if (seen.insert(fs::weakly_canonical(run)).second) runs.push_back(run);
  const bool single = arguments.folders.size() == 1;
  std::string title = arguments.title;
  if (title.empty()) title = single ? folder_name(arguments.folders[0]) : "Runs";
  fs::path out = arguments.out;
  if (out.empty()) out = (single ? fs::path(arguments.folders[0]) : fs::path()) / "report.html";
  check_output(out.string(), Writing::kInPlace);
  write_report(runs, title, out);
  fmt::print("{}\n", out.string());
}

}  // namespace

void add_report_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command =
      program.add_subcommand("report", "Draw the results of runs as one HTML page with charts");
  command
      ->add_option("RUN", arguments->folders,
                   "Folders that train, compare or sweep wrote with --out;\n"
                   "of compare and sweep, all runs inside")
      ->required();
  command
      ->add_option("--out", arguments->out,
                   "The page; else report.html in RUN, or in the current folder\n"
                   "if there are several")
      ->type_name("FILE");
  command->add_option("--title", arguments->title, "Its title; else the name of RUN")
      ->type_name("TEXT");
  command->footer(
      "The page is one file, which needs no network. A run that still goes on can be shown.");
  command->callback([arguments] { report(*arguments); });
}

}  // namespace thinwire::cli
