// check_for_group(): what make_exchange and regroup check of options before they build a runner.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Throws the mistakes in options that all ranks of a group find alike.
Sections check_for_group(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                         int ranks);

}  // namespace thinwire
