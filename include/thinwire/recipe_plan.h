// What a plan needs of a recipe: the arithmetic of its steps, and its exchange.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/step_plan.h"
#include "thinwire/trainer.h"

namespace thinwire {

// The arithmetic of one of `ranks` ranks in a step of this recipe, for predict_step: medians of
// `steps` steps without an exchange, after two that do not count. With no steps all times are 0.
// Throws Error: kBadOption, naming the key, unless the ranks share each step; kIo for data.
StepTimeline recipe_timeline(const Recipe& recipe, const RunPlaces& places, int ranks, int steps);

// The options of the exchange that train_recipe makes.
ExchangeOptions recipe_exchange(const Recipe& recipe);

}  // namespace thinwire
