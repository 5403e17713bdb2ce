// The sizes of every codec's payloads for set values, as a table on file to compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace thinwire::samples {

// tests/golden/payload_sizes.csv: for every variant of every codec, the payload of the first step of
// 100,003 values (331 x 302 where the shape decides) drawn from a normal law and from one with heavy
// tails (its cubes), as a linear and as a convolution's tensor. Columns: codec, kind, values (the law),
// bytes, bits_per_value.
std::string payload_sizes();

}  // namespace thinwire::samples
