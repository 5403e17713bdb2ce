// thinwire watch: runs that go on, on the terminal.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/number_check.h"
#include "cli/report/reported_run.h"
#include "cli/terminal.h"
#include "cli/watch/followed_run.h"
#include "cli/watch/run_view.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct WatchArguments {
  std::string folder;
  double every = 1;
  bool once = false;
};

// The runs of a folder, of which new ones may begin at any time.
class Watcher {
 public:
  explicit Watcher(fs::path folder) : folder_(std::move(folder)) {}

  void update() {
    for (const fs::path& run : runs_in(folder_))
      if (!runs_.contains(run)) runs_.emplace(run, FollowedRun(run));
    for (auto& [path, run] : runs_) run.update();
  }

  bool finished() const {
    return std::all_of(runs_.begin(), runs_.end(),
                       [](const auto& entry) { return entry.second.finished(); });
  }

  std::vector<std::string> lines(const Terminal& terminal) const {
    std::vector<std::string> all;
    for (const auto& [path, run] : runs_)
      for (std::string& line : lines_of(run, terminal)) all.push_back(std::move(line));
    return all;
  }

 private:
  fs::path folder_;
  std::map<fs::path, FollowedRun> runs_;
};

void sleep_unless_stopped(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!stop_requested() && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Draws over what was drawn before. Lines that do not fit the window are left out at the top.
void watch(const WatchArguments& arguments) {
  Watcher watcher(arguments.folder);
  size_t drawn = 0;
  while (true) {
    watcher.update();
    const Terminal terminal = look_at(stdout);
    std::vector<std::string> lines = watcher.lines(terminal);
    const auto height = static_cast<size_t>(std::max(terminal.height - 1, 1));
    if (terminal.live && lines.size() > height)
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(height));
    std::string text = drawn > 0 ? fmt::format("\033[{}A\r\033[J", drawn) : "";
    for (const std::string& line : lines) text += line + "\n";
    fmt::print("{}", text);
    std::fflush(stdout);
    drawn = lines.size();
    if (!terminal.live || arguments.once || watcher.finished() || stop_requested()) return;
    sleep_unless_stopped(arguments.every);
    if (stop_requested()) return;
  }
}

}  // namespace

void add_watch_command(CLI::App& program, int& /*exit_code*/) {
  auto arguments = std::make_shared<WatchArguments>();
  CLI::App* command =
      program.add_subcommand("watch", "Show the progress of running runs: loss, time, bytes");
  command
      ->add_option("DIR", arguments->folder,
                   "Folder that train, compare or sweep writes with --out")
      ->required();
  command->add_option("--every", arguments->every, "Seconds between two looks")
      ->default_val(1)
      ->check(number_between(0.1, 86400.0))
      ->type_name("SECONDS");
  command->add_flag("--once", arguments->once, "Show it once");
  command->footer(
      "It reads the runs' files and does not slow them. It ends when all runs are finished, or by\n"
      "Ctrl-C, which does not stop the runs. Where the output is no terminal, it is shown once.");
  command->callback([arguments] {
    watch_interrupts();
    watch(*arguments);
  });
}

}  // namespace thinwire::cli
