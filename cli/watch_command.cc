// thinwire watch: runs that go on, on the terminal.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/number_check.h"
#include "cli/report/reported_run.h"
#include "cli/run_list.h"
#include "cli/terminal.h"
#include "cli/watch/followed_run.h"
#include "cli/watch/run_view.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;

struct WatchArguments {
  std::string folder;
  double every = 1;
  double until_idle = 0;  // seconds; 0: for any time
  bool once = false;
};

// The runs of a folder, of which new ones may begin at any time.
class Watcher {
 public:
  explicit Watcher(fs::path folder) : folder_(std::move(folder)) {}

  // Throws kIo where the folder holds no run, unless a list says that there will be some.
  void update() {
    list_ = listed_runs(folder_);
    for (const fs::path& run : list_ ? begun_runs_in(folder_) : runs_in(folder_))
      if (!runs_.contains(run)) runs_.emplace(run, FollowedRun(run));
    for (auto& [path, run] : runs_) run.update();
  }

  // Whether nothing else comes, as far as the folder tells. Runs that somebody starts one after the
  // other in a folder without a list may always be followed by another.
  bool ended() const {
    if (const auto itself = runs_.find(folder_); itself != runs_.end())
      return itself->second.finished();
    return list_ && list_->ended;
  }

  // Since a run wrote something, or since the watch began where there is no run yet.
  double idle_seconds() const {
    double least = std::chrono::duration<double>(Clock::now() - began_).count();
    if (!runs_.empty()) least = runs_.begin()->second.silent_seconds();
    for (const auto& [path, run] : runs_) least = std::min(least, run.silent_seconds());
    return least;
  }

  std::vector<std::string> lines(const Terminal& terminal) const {
    std::vector<std::string> all;
    for (const auto& [path, run] : runs_)
      for (std::string& line : lines_of(run, terminal)) all.push_back(std::move(line));
    if (list_ && !runs_.contains(folder_)) all.push_back(list_line());
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string list_line() const {
    const auto done =
        std::count_if(list_->runs.begin(), list_->runs.end(), [&](const std::string& name) {
          const auto run = runs_.find(folder_ / name);
          return run != runs_.end() && run->second.finished();
        });
    const bool short_of = list_->ended && static_cast<size_t>(done) < list_->runs.size();
    return fmt::format("{} of {} runs done{}", done, list_->runs.size(),
                       short_of ? "; no other goes on" : "");
  }

  const Clock::time_point began_ = Clock::now();
  fs::path folder_;
  std::optional<ListedRuns> list_;
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
    if (!terminal.live || arguments.once || watcher.ended() || stop_requested()) return;
    if (arguments.until_idle > 0 && watcher.idle_seconds() >= arguments.until_idle) return;
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
  command
      ->add_option("--until-idle", arguments->until_idle,
                   "End, too, when no run has written anything for so long")
      ->check(number_between(0.1, 1e9))
      ->type_name("SECONDS");
  command->add_flag("--once", arguments->once, "Show it once");
  command->footer(
      "It reads the runs' files and does not slow them. It ends when the run in DIR is finished,\n"
      "or the sweep or comparison in DIR has ended; or by Ctrl-C, which does not stop the runs.\n"
      "Runs that were started one by one inside DIR may always be followed by another. Where the\n"
      "output is no terminal, it is shown once.");
  command->callback([arguments] {
    watch_interrupts();
    watch(*arguments);
  });
}

}  // namespace thinwire::cli
