// Manifest: progress.json of a checkpoint: the run's state, and its files' sizes and checksums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/run_totals.h"

namespace thinwire {

struct FileMark {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
};

// What a small model came to.
struct SmallReport {
  double exact_loss = 0;     // on held-out samples, of the weights that were trained
  double loss = 0;           // of those in the file
  uint64_t exact_bytes = 0;  // of the weights
  uint64_t bytes = 0;        // of the file
  uint64_t follows = 0;      // files before it in its chain
  int trials = 0;            // settings that were measured
  double seconds = 0;        // to measure and to code
  std::vector<std::pair<std::string, uint64_t>>
      treatments;  // of each tensor that is not exact by nature
};

struct Manifest {
  uint64_t step = 0;
  int world_size = 1;
  std::string recipe;
  RunTotals totals;
  std::map<std::string, FileMark> files;
  std::optional<SmallReport> small =
      {};  // written for readers of the file; read_manifest leaves it out
};

// Throws Error(kIo).
void write_manifest(const std::filesystem::path& path, const Manifest& manifest);

// Throws Error: kIo when it cannot be read, kCorrupt when it is not a manifest, kUnsupported when a
// later version wrote it; always naming the path.
Manifest read_manifest(const std::filesystem::path& path);

// 16 hexadecimal digits.
std::string hex(uint64_t number);

}  // namespace thinwire
