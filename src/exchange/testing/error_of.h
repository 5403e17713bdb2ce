// For tests: error_of(), which runs a function and returns the text of the Error that it throws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "thinwire/status.h"

namespace thinwire::testing {

// Empty if `work` throws no Error.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace thinwire::testing
