// Starts other processes of this program, for runs at the same time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace thinwire::cli {

// One process. It is in a process group of its own, so that Ctrl-C reaches it through its parent
// alone, and is asked to end when the parent dies. Used by the thread that made it, which must live
// as long.
class ChildProcess {
 public:
  // Starts this program with `arguments`; its output is appended to the file `log`. Throws
  // Error(kIo).
  ChildProcess(const std::vector<std::string>& arguments, const std::string& log);
  ~ChildProcess();  // ends it the hard way where it still runs
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // Its exit code once it has ended, 128 + the signal when it died of one; nothing while it runs.
  std::optional<int> ended();

  // As the first Ctrl-C does: it stops after its step.
  void interrupt() noexcept;

 private:
  pid_t pid_ = -1;  // -1: has ended
};

}  // namespace thinwire::cli
