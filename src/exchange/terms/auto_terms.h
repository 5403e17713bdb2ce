// Codec "auto" as the exchange knows it: where it may be written. What it chooses is decided by
// layer plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/auto_codec.h"
#include "thinwire/exchange.h"
#include "thinwire/status.h"

namespace thinwire {

// Whether the options leave auto its choice, and no rule says auto.
Status check_auto(const ExchangeOptions& options);

}  // namespace thinwire
