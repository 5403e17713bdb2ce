// Reads the weights of a network from whatever thinwire saves them in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "thinwire/state.h"

namespace thinwire {

struct SavedModel {
  std::string from;  // the file
  StateArrays arrays;
  uint64_t bytes = 0;  // of the file, and of those that it follows
};

// Reads a safetensors file, a small model (known by its first bytes; if it follows other files, it
// has its name in a checkpoint's folder, and they are beside it), a checkpoint's folder, or a run's
// folder: its model.safetensors, else its newest checkpoint. Where a checkpoint's folder has
// progress.json, the files are those that it lists, with their sizes and checksums. Throws Error:
// kIo where there is none, and those of the files, with their names.
SavedModel read_saved_model(const std::filesystem::path& from);

}  // namespace thinwire
