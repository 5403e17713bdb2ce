// The exit codes of the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "thinwire/status.h"

namespace thinwire::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,     // the run broke off: lost peer, bad data, unreadable file
  kExitUsage = 2,      // command line or recipe is wrong; nothing was started
  kExitStopped = 130,  // the user stopped it (128 + SIGINT)
};

// The command line or the recipe is wrong, whatever the code says in a library's eyes.
class UsageError : public Error {
 public:
  using Error::Error;
};

inline void or_usage_error(const Status& status) {
  if (!status) throw UsageError(status.code(), status.message());
}

template <typename T>
T or_usage_error(Result<T> result) {
  or_usage_error(result.status());
  return std::move(result).value();
}

}  // namespace thinwire::cli
