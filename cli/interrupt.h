// Ctrl-C and SIGTERM: the first asks the run to stop after its step, the second ends the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire::cli {

// Installs the handlers. Call once, before threads start.
void watch_interrupts();

// From now on the first signal says that the run goes on to its end.
void announce_no_early_stop() noexcept;

// Whether a signal has asked to stop. From any thread.
bool stop_requested() noexcept;

}  // namespace thinwire::cli
