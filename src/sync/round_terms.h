// RoundTerms: what a local method's rounds are made of, without ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "thinwire/exchange.h"
#include "thinwire/options.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

struct RoundTerms {
  std::string_view rule;  // "diloco"
  Options options;        // its own
  // Of rules whose rounds are means of all workers: the exchange that forms them.
  std::optional<ExchangeOptions> exchange = std::nullopt;
};

// Fails as make_synchroniser does, as far as that is known without ranks.
Result<RoundTerms> round_terms(const SynchroniserOptions& options);

}  // namespace thinwire
