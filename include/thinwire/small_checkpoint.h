// Small checkpoints: the weights of a network in files of few bytes, and their values again.
// docs/training.md, Small checkpoints, says how a run writes them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

struct SmallFileBytes {
  std::string name;  // for errors
  std::span<const std::byte> bytes;
};

// The arrays of the last of these files: model-000.small, model-001.small and so on of a
// checkpoint's folder, in this order. The bytes may be anything. Fails with the name of the first
// file that is damaged (kBadLength, kCorrupt), of another version (kUnsupported) or does not follow
// the one before it (kMismatch). Safe to call from any thread.
Result<StateArrays> expand_small_model(std::span<const SmallFileBytes> files);

// XXH3-64 with seed 0, which progress.json of a checkpoint has for each of its files, small or
// exact.
uint64_t file_checksum(std::span<const std::byte> bytes);

}  // namespace thinwire
