// The IDX format of MNIST and its kin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace thinwire {

struct IdxArray {
  std::vector<uint64_t> shape;    // outermost dimension first
  std::vector<std::byte> values;  // row-major
};

// Reads an IDX file of bytes with so many dimensions, packed or not. Throws Error kIo or kCorrupt.
IdxArray read_idx(const std::string& path, size_t dimensions);

}  // namespace thinwire
