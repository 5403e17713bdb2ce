// The safetensors format: named arrays in one file that any framework can read.
//
//   u64  size of the header, little endian
//   JSON {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}}
//   data
//
// Offsets count from the start of the data; the arrays cover it without gaps or overlaps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "thinwire/state.h"
#include "thinwire/status.h"

namespace thinwire {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  StateArrays arrays;  // each name once; on_resize travels in the metadata
};

// The bytes of the file. Arrays of wider types come first, so that all lie at multiples of their
// size. Reading gives the arrays by name.
std::vector<std::byte> write_safetensors(const TensorFile& file);

// Bytes that may be anything. Fails, starting with `origin`, on whatever is not as above, on types
// other than F32, F64, I64 and U8, and on a header of more than 100 MB (the format's own limit).
Result<TensorFile> read_safetensors(const std::string& origin, std::span<const std::byte> bytes);

}  // namespace thinwire
