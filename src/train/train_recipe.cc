// train_recipe: makes the network and data that a recipe names, and runs it.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "train/data/data_sets.h"
#include "train/models/models.h"
#include "train/recipe_parts.h"
#include "train/run_device.h"
#include "train/start_weights.h"

namespace thinwire {
RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Group& group,
                        const RunEvents& events) {
  set_deadline(group, recipe.options);  // reading data may take ranks unlike times
  DataSplits data;
  Task task;
  const ProcessRanks ranks = ranks_of_process(group);
  together(group, [&] {
    const std::string& device = recipe.options.text("run.device");
    check_run_device(device).or_throw();
    static_cast<void>(RunDevice(device, group.rank(), ranks));  // what is missing is said at once
    data = make_data_set(data_request(recipe.options, places.data));
    task = make_model(model_options(recipe.options), data.shape);
    const std::string& weights = recipe.options.text("model.weights");
    // A checkpoint has all of them.
    if (!weights.empty() && places.resume.empty()) load_weights(*task.module, weights);
  });
  return train_task(recipe, places, group, std::move(task),
                    {.train = *data.train, .test = *data.test, .hold_out = data.held_out.get()},
                    events);
}

// Each worker reads for itself: one that comes later must not keep the others waiting.
RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Members& members,
                        const RunEvents& events) {
  const DataSplits data = make_data_set(data_request(recipe.options, places.data));
  Task task = make_model(model_options(recipe.options), data.shape);
  const std::string& weights = recipe.options.text("model.weights");
  if (!weights.empty() && places.resume.empty()) load_weights(*task.module, weights);
  return train_task(recipe, places, members, std::move(task),
                    {.train = *data.train, .test = *data.test, .hold_out = data.held_out.get()},
                    events);
}

}  // namespace thinwire
