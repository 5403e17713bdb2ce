// Which options of an exchange go together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "codec/codec_schedule.h"
#include "exchange/terms/terms.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"

namespace thinwire {

// These fail with what users may choose instead.

// Checks a codec of the schedule against the grouping that users chose, if any.
Status check_grouping(std::optional<Grouping> grouping, const std::string& spec,
                      const CodecInfo& info);

// Checks that streams have one method in both regimes of an accordion, and that regimes see whole
// results.
Status check_regimes(const ExchangeOptions& options, const CodecSchedule& schedule,
                     const Combine& rule);

// Checks what is decided against all other options. `follows_mean` says whether the memory follows
// the mean of all ranks.
Status check_terms(const ExchangeOptions& options, const CodecSchedule& schedule,
                   const Terms& terms, bool follows_mean);

}  // namespace thinwire
