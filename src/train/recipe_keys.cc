// All keys of a recipe, in the order in which recipes are written.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "thinwire/trainer.h"
#include "train/recipe_tables.h"

namespace thinwire {
namespace {

std::vector<OptionInfo> all_tables() {
  std::vector<OptionInfo> all;
  for (const auto keys_of_table :
       {data_keys, model_keys, train_keys, optimizer_keys, schedule_keys, clip_keys, sync_keys,
        pipeline_keys, tensor_keys, exchange_keys, checkpoint_keys, run_keys})
    std::ranges::copy(keys_of_table(), std::back_inserter(all));
  return all;
}

}  // namespace

std::span<const OptionInfo> recipe_keys() {
  static const std::vector<OptionInfo> keys = all_tables();
  return keys;
}

}  // namespace thinwire
