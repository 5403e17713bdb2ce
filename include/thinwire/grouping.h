// Grouping: which tensors of an exchange are compressed together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

enum class Grouping : uint8_t {
  kTensor,  // each weight tensor alone; biases and norm parameters are sent uncompressed
  kModel,   // all tensors, biases and norms included, as one vector
  kGlobal,  // the streams of kTensor, whose values are selected by one threshold for all of them;
            // docs/global-threshold.md
};

// "tensor", "model", "global".
std::string_view to_string(Grouping grouping) noexcept;

// What users may write: "auto", and the names of all groupings.
std::vector<std::string_view> grouping_choices();

// The grouping of this name; absent for "auto". Fails with kUnknownName and the choices.
Result<std::optional<Grouping>> parse_grouping(std::string_view text);

// Whether all tensors of a section are one stream, and have one memory.
inline bool is_one_stream(Grouping grouping) noexcept { return grouping == Grouping::kModel; }

}  // namespace thinwire
