// The settings of a recipe's sections as the trainer uses them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/exchange.h"
#include "thinwire/momentum.h"
#include "thinwire/options.h"
#include "thinwire/synchroniser.h"
#include "train/data/data_sets.h"
#include "train/models/models.h"

namespace thinwire {

DataRequest data_request(const Options& recipe, const std::string& folder);
ModelOptions model_options(const Options& recipe);
ExchangeOptions exchange_options(const Options& recipe);

// What SGD does with gradients; no momentum for others.
Momentum own_momentum(const Options& recipe);

// Whether it does so before the exchange, in the memory that exchange_options names.
bool momentum_in_memory(const Options& recipe);

// Whether Adam's first moment acts on what arrives.
bool first_moment_acts(const Options& recipe);

// Whether Adam's second moments are those of SecondMoments.
bool second_moments_of_ranks(const Options& recipe);

// Whether they stay as they are after optimizer.freeze_after.
bool freezes_second_moment(const Options& recipe);

// Whether clip.norm is of each worker's own gradient, before the exchange.
bool clips_own(const Options& recipe);

SynchroniserOptions synchroniser_options(const Options& recipe);

// The longest wait of a run for another rank.
void set_deadline(Group& group, const Options& recipe);

}  // namespace thinwire
