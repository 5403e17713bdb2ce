// The settled options of an exchange, with every "auto" decided, for printing and comparing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/status.h"

namespace thinwire {

// The settings in step options.first_step; memory and grouping are those of all steps.
struct SettledOptions {
  std::string codec;     // with every option spelt out
  std::string feedback;  // "residual"; "none"
  std::string method;    // "gather"
  Grouping grouping = Grouping::kTensor;
};

// Fails as check_exchange does.
Result<SettledOptions> settled_options(const ExchangeOptions& options);

}  // namespace thinwire
