// Options of exchanges that share a step: it counts if the verdicts of all of them say so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/exchange.h"

namespace thinwire {

// Steps are held (ExchangeOptions::hold) until the caller knows all verdicts and calls
// Exchange::settle, unless codec or memory cannot be held: that of ef21, and accordions. Skipped
// steps in a row are the caller's to count.
inline ExchangeOptions held_options(ExchangeOptions options) {
  options.max_skipped = 0;
  options.hold = true;
  if (!check_exchange(options)) options.hold = false;
  return options;
}

}  // namespace thinwire
