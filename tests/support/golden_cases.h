// The inputs whose payloads are on file, and their text form.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "thinwire/codec.h"

namespace thinwire::samples {

// What tests/golden/<codec>.txt must hold: for every variant of the codec's options and a few streams,
// the agreed spec, the payload, and the values that a decoder must give, as
//
//   codec topk:density=0.01,values=fp32
//   tensors conv.weight:convolution:108 fc.weight:linear:903 fc.bias:bias:13
//           (of codecs of matrices 4x3x3x3 instead of 108)
//   payload <hexadecimal bytes; '-' if there are none>
//   decoded <hexadecimal bytes of little-endian f32; runs of zeros as *<how many values>>
//
// with an empty line between cases.
std::string golden_text(const CodecEntry& entry);

// Two lower-case digits for each byte; "-" for none.
std::string hex(std::span<const std::byte> bytes);

}  // namespace thinwire::samples
