// THINWIRE_CHECK: a broken contract at a public entry point becomes Error(kContract).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/status.h"

// The message is only formed on failure.
#define THINWIRE_CHECK(condition, message)                                                  \
  do {                                                                                      \
    if (!(condition)) throw ::thinwire::Error(::thinwire::ErrorCode::kContract, (message)); \
  } while (false)
