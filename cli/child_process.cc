// Starts processes by fork and exec, and waits for them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "thinwire/status.h"

namespace thinwire::cli {
namespace {

constexpr int kNotStarted = 127;

// Between fork and exec: only what a signal handler might do.
[[noreturn]] void become(char* const* arguments, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kNotStarted);  // it died before it could be watched
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0)
    _exit(kNotStarted);
  execv("/proc/self/exe", arguments);
  _exit(kNotStarted);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw Error(ErrorCode::kIo, log + ": " + std::strerror(errno));
  std::vector<char*> words;
  static char name[] = "thinwire";
  words.push_back(name);
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(words.data(), file, parent);
  const int why = errno;
  close(file);
  if (pid_ < 0) throw Error(ErrorCode::kIo, std::string("fork: ") + std::strerror(why));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<int> ChildProcess::ended() {
  int status = 0;
  const pid_t who = waitpid(pid_, &status, WNOHANG);
  if (who == 0 || (who < 0 && errno == EINTR)) return std::nullopt;
  pid_ = -1;
  if (who < 0) return kNotStarted;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void ChildProcess::interrupt() noexcept {
  if (pid_ > 0) kill(pid_, SIGINT);
}

}  // namespace thinwire::cli
