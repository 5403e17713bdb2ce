// Terms: an exchange's options with every "auto" decided.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exchange/wire/coding_terms.h"
#include "thinwire/exchange.h"

namespace thinwire {

struct MethodEntry;

// Options with every "auto" decided, as they are in one step. Only codec and method change over
// time.
struct Terms : CodingTerms {
  const MethodEntry* method = nullptr;
  bool divisible = false;  // streams may be cut at any value, in every step
  bool everybody = false;  // each rank combines all contributions by itself, in every step
};

// Those of streams in a critical regime or of the others; only their codecs differ. Fails with the
// choices when a name is unknown or a codec of the schedule does not fit the method.
Result<Terms> resolve_terms(const ExchangeOptions& options, uint64_t step, bool critical = true);

}  // namespace thinwire
