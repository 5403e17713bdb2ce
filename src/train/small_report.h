// What a small checkpoint came to, and the files that it is made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/manifest.h"
#include "train/small_options.h"

namespace thinwire {

// A file of a chain.
struct SmallChainFile {
  std::string name;
  FileMark mark;
  uint64_t sum = 0;  // XXH3 at its end, by which the next one knows it
};

// What rank 0 writes in the place of model.safetensors.
struct SmallSave {
  std::vector<std::byte> bytes;
  std::vector<SmallChainFile> chain;   // the files before it
  std::filesystem::path chain_folder;  // where they are
  SavedOptimizer optimizer = SavedOptimizer::kExact;
  SmallReport report;
};

// Whether all files of a chain are in the folder with the bytes that they had, which are read.
bool has_chain(const std::filesystem::path& folder, const std::vector<SmallChainFile>& chain);

// Puts the files of a chain into another folder, as further names of the same files where the file
// system has that, else as copies. Throws Error(kIo) or std::filesystem::filesystem_error.
void link_chain(const std::filesystem::path& from, const std::vector<SmallChainFile>& chain,
                const std::filesystem::path& to);

}  // namespace thinwire
