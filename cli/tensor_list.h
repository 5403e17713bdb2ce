// Lists of tensors, for plans of networks that no recipe names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire::cli {

// A line for each tensor, first layer first: its name, its shape as in 64x3x7x7, and its kind
// unless that follows from the shape: one dimension is a bias, two are linear, more a convolution.
// Empty lines and those that begin with # do not count. `path` is for messages, which name the
// line.
Result<std::vector<TensorSpec>> parse_tensor_list(std::string_view text, const std::string& path);

}  // namespace thinwire::cli
