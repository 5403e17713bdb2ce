// Whether the memories of an exchange owe something, and an exchange that sends all of it at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/exchange.h"

namespace thinwire {

// Fails, naming the memories, where nothing is owed at the end of a run, and where one step cannot
// send all that is. REQUIRES: check_exchange succeeds.
Status check_flush(const ExchangeOptions& options);

// What to change an exchange of these options to: all codecs send everything, memories and streams
// are as they were. REQUIRES: check_flush succeeds.
ExchangeOptions flushing(ExchangeOptions options);

}  // namespace thinwire
