// make_runner(): makes the runner of an exchange, with one level, with two, or of one column.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exchange/runner/runner.h"
#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// Splits a group into the channels that the options need. All ranks call it. REQUIRES: check_groups
// and check_grid accept the options.
Channels split_levels(Group& group, const ExchangeOptions& options);

// Makes the runner that options.inside and options.columns ask for. Ranks need not wait for each
// other. Throws Error(kMismatch) if the store has memories of these tensors that belong to groups
// of another size.
std::unique_ptr<Runner> make_runner(const Sections& sections, const ExchangeOptions& options,
                                    const std::vector<TensorSpec>& tensors, Channels channels,
                                    Store& store);

}  // namespace thinwire
