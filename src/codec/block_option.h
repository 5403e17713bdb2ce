// The option `block` that quantisers share: how many values have a scale of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "thinwire/options.h"

namespace thinwire {

// Powers of two from 64 to 4096, so that codes of any width end on a byte and a block stays in the
// first cache while it is read again.
OptionInfo block_option(std::string_view fallback);
size_t block_length(const Options& options);

}  // namespace thinwire
