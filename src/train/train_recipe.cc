// From a recipe's names to a network, its data, and a run.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include "train/data/data_sets.h"
#include "train/models/models.h"
#include "train/together.h"

namespace thinwire {
namespace {

DataRequest data_request(const Options& recipe, const std::string& folder) {
  const auto count = [&](const char* key) { return static_cast<uint64_t>(recipe.integer(key)); };
  return {.name = recipe.text("data.name"),
          .folder = folder,
          .hold_out = count("data.hold_out"),
          .train_samples = count("data.train_samples"),
          .test_samples = count("data.test_samples"),
          .augment = recipe.flag("data.augment"),
          .crop = recipe.integer("data.crop"),
          .sequence = recipe.integer("data.sequence")};
}

ModelOptions model_options(const Options& recipe) {
  return {.name = recipe.text("model.name"),
          .hidden = recipe.integer("model.hidden"),
          .layers = recipe.integer("model.layers"),
          .embedding = recipe.integer("model.embedding"),
          .activation = recipe.text("model.activation"),
          .dropout = recipe.number("model.dropout"),
          .seed = static_cast<uint64_t>(recipe.integer("train.seed"))};
}

}  // namespace

RunSummary train_recipe(const Recipe& recipe, const RunPlaces& places, Group& group,
                        const RunEvents& events) {
  DataSplits data;
  Task task;
  together(group, [&] {
    data = make_data_set(data_request(recipe.options, places.data));
    task = make_model(model_options(recipe.options), data.shape);
  });
  return train_task(recipe, places, group, std::move(task),
                    {.train = *data.train, .test = *data.test, .hold_out = data.held_out.get()},
                    events);
}

}  // namespace thinwire
