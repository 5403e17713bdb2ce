// What a plan needs of a recipe: the arithmetic of its steps, and its exchange.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/pipeline_plan.h"
#include "thinwire/step_plan.h"
#include "thinwire/synchroniser.h"
#include "thinwire/trainer.h"

namespace thinwire {

// The arithmetic of one of `ranks` ranks in a step of this recipe, for predict_step: medians of
// `steps` steps without an exchange, after two that do not count. With no steps all times are 0.
// Of workers that step by themselves (sync.method) it is a step without its round. Throws Error:
// kBadOption, naming the key, for a pipeline; kIo for data.
StepTimeline recipe_timeline(const Recipe& recipe, const RunPlaces& places, int ranks, int steps);

// The options of the exchange that train_recipe makes.
ExchangeOptions recipe_exchange(const Recipe& recipe);

// Those of its synchroniser; without a method if ranks share each step.
SynchroniserOptions recipe_synchroniser(const Recipe& recipe);

// The stages of a recipe with pipeline.stages, cut as train_recipe cuts them, and what crosses the
// cuts. Times of passes are medians of `steps` steps of all stages, one after another, on a
// micro-batch, after two that do not count; with no steps they are 0. Throws Error as train_recipe
// does for recipes and data.
PlannedPipeline recipe_pipeline(const Recipe& recipe, const RunPlaces& places, int ranks,
                                int steps);

}  // namespace thinwire
