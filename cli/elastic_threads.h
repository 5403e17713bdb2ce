// Workers that are threads and come and go.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/trainer.h"

namespace thinwire::cli {

// Trains a recipe with run.elastic on `size` threads. run.replacements of those that fail are
// replaced. `events` are called one at a time. Throws the error of the first that failed if no
// worker comes to the end.
RunSummary train_elastic_threads(int size, const Recipe& recipe, const RunPlaces& places,
                                 const RunEvents& events);

}  // namespace thinwire::cli
