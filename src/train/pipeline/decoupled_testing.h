// For tests: runs with decoupled stages, and their auxiliary variables as checkpoints have them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/pipeline/pipeline_testing.h"

namespace thinwire {

inline Settings decoupled(int stages, const Settings& more = {}) {
  return with({{"pipeline.stages", std::to_string(stages)},
               {"pipeline.schedule", "decoupled"},
               {"pipeline.penalty", "1"},
               {"train.micro_batches", "2"},
               {"train.epochs", "3"}},
              more);
}

// `more` in the place of the same keys of `settings`.
inline Settings changed(Settings settings, const Settings& more) {
  for (const auto& [key, value] : more)
    std::erase_if(settings, [&](const auto& row) { return row.first == key; });
  return with(std::move(settings), more);
}

// What each rank of a run has of the cut behind a layer, at the last checkpoint: by array.
using SavedVariables = std::map<std::string, std::vector<std::byte>>;

inline std::vector<SavedVariables> variables_of(const std::filesystem::path& out, int ranks,
                                                const std::string& layer) {
  std::vector<SavedVariables> all(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    const Checkpoint checkpoint = load_checkpoint(group, out);
    const std::string level = "pipeline/" + layer + "/auxiliary/";
    for (const StateArray& array : checkpoint.ranks.front())
      if (array.name.starts_with(level))
        all[static_cast<size_t>(group.rank())][array.name.substr(level.size())] = array.data;
  });
  return all;
}

// By id.
inline std::map<uint64_t, std::vector<float>> lambdas_of(const SavedVariables& saved) {
  const auto& keys = saved.at("keys");
  const auto& values = saved.at("values");
  const size_t samples = keys.size() / sizeof(uint64_t);
  std::map<uint64_t, std::vector<float>> lambdas;
  for (size_t i = 0; i < samples; ++i) {
    uint64_t key = 0;
    std::memcpy(&key, keys.data() + i * sizeof(key), sizeof(key));
    std::vector<float> lambda(values.size() / samples / sizeof(float));
    std::memcpy(lambda.data(), values.data() + i * lambda.size() * sizeof(float),
                lambda.size() * sizeof(float));
    lambdas[key] = std::move(lambda);
  }
  return lambdas;
}

}  // namespace thinwire
