// Cluster numbers as bytes: by themselves, or as changes since the numbers of an earlier
// checkpoint.
//
// Successive checkpoints put most values into the same cluster, and most others into the next one.
// So the code of changes says of each value whether its number is the one before, then whether it
// rose, then by how much (unary). What is expected of each bit is learnt for every earlier number
// apart, and apart for values that follow one that changed. The paper codes runs of equal numbers;
// a bit that is expected costs less here than in a run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// Codes numbers below `count`. `before` is empty, or has as many numbers below `count`.
std::vector<std::byte> code_numbers(std::span<const uint16_t> numbers, uint32_t count,
                                    std::span<const uint16_t> before = {});

// Reads `values` numbers from bytes that may be anything. Fails with kCorrupt where they are not
// what code_numbers writes. Memory is asked for piece by piece: a number of values that the bytes
// do not stand for costs twice what they do stand for at most, or 128 KB. On failure `numbers` is
// unspecified.
Status read_numbers(std::span<const std::byte> coded, uint32_t count,
                    std::span<const uint16_t> before, uint64_t values,
                    std::vector<uint16_t>& numbers);

}  // namespace thinwire
