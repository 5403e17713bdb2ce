// Checks what a folder that `thinwire train` wrote holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace thinwire::cli {

// Whether a run was cut off in this folder and left something to go on from.
bool is_unfinished(const std::filesystem::path& folder);

}  // namespace thinwire::cli
