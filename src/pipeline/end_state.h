// The saved state of an end: its streams, if it sends, and its estimates.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "pipeline/estimates.h"
#include "pipeline/stream_coders.h"

namespace thinwire {

StateArrays save_end(const StreamCoders* coders, const std::optional<Estimates>& estimates);

// All or nothing: fails, changing nothing, where an array does not fit.
Status load_end(const StateArrays& arrays, StreamCoders* coders,
                std::optional<Estimates>& estimates);

}  // namespace thinwire
