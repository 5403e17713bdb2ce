// A few frames, with what their headers say, as a file that other decoders can be tried on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace thinwire::samples {

// tests/golden/frames.txt: one frame per line, as "codec flags round sender generation stream step place
// count payload frame"; payload and frame in hexadecimal, an empty payload as '-'.
std::string golden_frames();

}  // namespace thinwire::samples
