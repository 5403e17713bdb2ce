// Checks the store, splits the group, and chooses the runner.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/make_runner.h"

#include "exchange/levels/column_runner.h"
#include "exchange/levels/levels_runner.h"
#include "exchange/runner/step_runner.h"
#include "exchange/state/stream_keys.h"

namespace thinwire {
namespace {

// A group's memories are with one of its ranks. Those of groups of another size would be added up
// wrongly.
void check_store(const Store& store, const std::vector<TensorSpec>& tensors, int inside) {
  if (store.inside() == inside) return;
  const auto refuse_if_held = [&](const std::string& stream) {
    for (const std::string& key : stream_keys(stream))
      if (store.holds(key))
        throw Error(
            ErrorCode::kMismatch,
            "store: '" + key + "' belongs to an exchange with inside = " +
                std::to_string(store.inside()) + ", not " + std::to_string(inside) +
                "; save it on all ranks, and load it into new stores with Store::load(..., " +
                std::to_string(inside) + ")");
  };
  refuse_if_held("model");
  for (const TensorSpec& tensor : tensors)
    for (const char* before : {"", "model:"}) refuse_if_held(before + tensor.name);
}

}  // namespace

Channels split_levels(Group& group, const ExchangeOptions& options) {
  Channels channels{.all = group.split(0), .inside = nullptr, .between = nullptr};
  if (options.columns > 1) channels.between = channels.all->split(group.rank() % options.columns);
  if (options.inside == 1) return channels;
  channels.inside = channels.all->split(group.rank() / options.inside);
  channels.between = channels.all->split(group.rank() % options.inside);
  return channels;
}

std::unique_ptr<Runner> make_runner(const Sections& sections, const ExchangeOptions& options,
                                    const std::vector<TensorSpec>& tensors, Channels channels,
                                    Store& store) {
  check_store(store, tensors, options.inside);
  store.set_inside(options.inside);
  if (options.columns > 1)
    return std::make_unique<ColumnRunner>(sections, options, tensors, std::move(channels), store);
  if (channels.inside == nullptr)
    return std::make_unique<StepRunner>(sections, options, tensors, std::move(channels.all), store);
  return std::make_unique<LevelsRunner>(sections, options, tensors, std::move(channels), store);
}

}  // namespace thinwire
