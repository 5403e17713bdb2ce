// The folder of a run as tools read it afterwards: its checkpoints, their recipes, and their
// weights in a network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <ranges>
#include <string>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/torch.h"
#include "train/checkpoint.h"

namespace thinwire {

// "a, b, c".
std::string joined_names(const std::ranges::input_range auto& names) {
  std::string text;
  for (const auto& name : names) (text += text.empty() ? "" : ", ") += name;
  return text;
}

// "out/run/" as "out/run".
std::filesystem::path without_slash(std::filesystem::path run);

// Oldest first; `run` itself if it is a checkpoint. Throws Error(kIo) where there is none, and
// names runs that are in the folder.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& run);

// The recipe with which the checkpoint in `folder` was written. Throws Error, with the name of its
// file.
Options recipe_of(const Checkpoint& checkpoint, const std::filesystem::path& folder);

// Puts weights into the recipe's network. Throws Error(kMismatch), naming `from`, where they are
// those of another one.
void show_weights(const StateArrays& arrays, const std::string& from, const Options& recipe,
                  const torch::nn::Module& module);

}  // namespace thinwire
