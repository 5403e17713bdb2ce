// Checks what a folder that `thinwire train` wrote holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "thinwire/trainer.h"

namespace thinwire::cli {

// Whether the folder is a checkpoint, whatever its name: one that was copied may have any.
bool is_checkpoint(const std::filesystem::path& folder);

// Whether a run was cut off in this folder and left something to go on from.
bool is_unfinished(const std::filesystem::path& folder);

// The first setting in which a run of `recipe` is not the earlier one: "train.epochs: 3 before, 5
// now"; empty where there is none. `before` has the earlier one's canonical values, none for a key
// that it did not have, which then had its default. The device is not compared: it says where a run
// computed and not what.
std::string first_difference(
    const std::function<std::optional<std::string>(std::string_view key)>& before,
    const Recipe& recipe);

// The same of the run that was cut off in this folder, by its recipe.toml, but for settings that
// change nothing of what it computes (checkpoint.*, run.threads). Empty too where that cannot be
// read: then `thinwire train --resume` compares with the checkpoint's own.
std::string difference_to_unfinished(const std::filesystem::path& folder, const Recipe& recipe);

// Removes the checkpoints of a run that was cut off, so that another one may begin in its folder.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace thinwire::cli
