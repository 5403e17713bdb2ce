// Manifest: progress.json of a checkpoint: the run's state, and its files' sizes and checksums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "train/run_totals.h"

namespace thinwire {

struct FileMark {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
};

struct Manifest {
  uint64_t step = 0;
  int world_size = 1;
  std::string recipe;
  RunTotals totals;
  std::map<std::string, FileMark> files;
};

// Throws Error(kIo).
void write_manifest(const std::filesystem::path& path, const Manifest& manifest);

// Throws Error: kIo when it cannot be read, kCorrupt when it is not a manifest, kUnsupported when a
// later version wrote it; always naming the path.
Manifest read_manifest(const std::filesystem::path& path);

// 16 hexadecimal digits.
std::string hex(uint64_t number);

}  // namespace thinwire
