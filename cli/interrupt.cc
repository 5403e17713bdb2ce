// The signal handlers for Ctrl-C and SIGTERM: set a flag, print a line, or end the program.
// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string_view>

#include "cli/mpirun.h"
#include "cli/terminal.h"

namespace thinwire::cli {
namespace {

std::atomic<bool> stop{false};
std::atomic<bool> stops_early{true};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may use nothing else
bool speaks = false;                                    // not on all ranks
bool live = false;

constexpr std::string_view kClear = "\r\033[K";  // where there is a live line, this takes its place
constexpr std::string_view kStops = "stopping after this step; once more to end at once\n";
constexpr std::string_view kGoesOn =
    "asynchronous workers do not stop before the end of their run; once more to end at once\n";

void print(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody to tell
}

void on_signal(int signal) {
  if (stop.exchange(true)) {
    // Unblocked when the handler returns; the shell then sees a program that died of the signal.
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  if (!speaks) return;
  if (live) print(kClear);
  print(stops_early ? kStops : kGoesOn);
}

}  // namespace

void watch_interrupts() {
  const auto world = mpirun_world();
  speaks = !world || world->rank == 0;
  live = look_at(stderr).live;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void announce_no_early_stop() noexcept { stops_early = false; }

bool stop_requested() noexcept { return stop.load(); }

}  // namespace thinwire::cli
