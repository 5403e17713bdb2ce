// A chain of files: the first stands alone, and each of the others follows the one before it. A
// checkpoint folder has a whole chain: model-000.small, model-001.small and so on. The last one is
// the checkpoint's own; the others are those of earlier checkpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shrink/small_model.h"
#include "thinwire/small_checkpoint.h"

namespace thinwire {

inline constexpr size_t kLongestChain = 1000;

// REQUIRES: place < kLongestChain.
std::string small_file_name(size_t place);
std::optional<size_t> place_of_small_file(std::string_view name);

// The model of the last file. Fails with the name of the first file that is damaged or does not
// fit.
Result<SmallModel> read_small_chain(std::span<const SmallFileBytes> files);

}  // namespace thinwire
