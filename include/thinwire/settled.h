// What the options of an exchange come to, with every "auto" decided: for who prints or compares them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/status.h"

namespace thinwire {

// As in step options.first_step; the memory and the grouping are those of all steps.
struct SettledOptions {
  std::string codec;     // with every option spelt out
  std::string feedback;  // "residual"; "none"
  std::string method;    // "gather"
  Grouping grouping = Grouping::kTensor;
};

// Fails as check_exchange does.
Result<SettledOptions> settled_options(const ExchangeOptions& options);

}  // namespace thinwire
