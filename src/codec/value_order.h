// Orders kept values by sign and size from a few bits for each, so that neighbours are alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thinwire {

// A label of `bits` bits says of a value its sign (the highest bit: 1 is negative) and, in the
// others, in which of 2^(bits - 1) classes of equal numbers its magnitude is among the values of
// its sign; class 0 has the largest. Equal magnitudes are ordered as they stand. REQUIRES: 1 <=
// bits <= 8; as many labels as values; finite values.
void label_values(std::span<const float> values, size_t bits, std::span<uint8_t> labels);

// The order of labels that ascend, equal ones as they stand: order[i] is the index of the i-th.
// Returns how many labels are of positive values; these come first. Takes any labels. REQUIRES: 1
// <= bits <= 8; labels below 2^bits; as many places in `order`.
size_t order_by_labels(std::span<const uint8_t> labels, size_t bits, std::span<uint32_t> order);

}  // namespace thinwire
