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
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may use nothing else
std::string_view line;                                  // empty on ranks that do not speak

void on_signal(int signal) {
  if (stop.exchange(true)) {
    // Unblocked when the handler returns; the shell then sees a program that died of the signal.
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody to tell
}

}  // namespace

void watch_interrupts() {
  const auto world = mpirun_world();
  if (!world || world->rank == 0)  // where there is a live line, this takes its place
    line = look_at(stderr).live ? "\r\033[Kstopping after this step; once more to end at once\n"
                                : "stopping after this step; once more to end at once\n";
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() noexcept { return stop.load(); }

}  // namespace thinwire::cli
