// The option `block` that quantisers share: how many values have a scale of their own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "thinwire/options.h"
#include "thinwire/stream.h"

namespace thinwire {

// Lengths are powers of two from 64 to 4096, so that codes of any width end on a byte and a block
// stays in the first cache while it is read again; or "tensor": a scale for each whole tensor.
OptionInfo block_option(std::string_view fallback,
                        std::vector<std::string_view> choices = {"64", "256", "1024", "4096"});

// 0 for "tensor".
size_t block_length(const Options& options);

// A stretch of a stream that is cut into blocks of its own.
struct Part {
  size_t begin = 0;  // first value in the stream
  size_t count = 0;
  size_t block = 1;  // the last block may be shorter
};

// The whole stream in one part; with block 0, each tensor that has values as a part of one block.
std::vector<Part> parts_of(const StreamSpec& stream, size_t block);

}  // namespace thinwire
