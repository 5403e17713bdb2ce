// frame_difference(): names the first header field in which a received frame differs from the
// expected one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/frame.h"

namespace thinwire {

// The name of the first field in which `got` differs from `expected`, or nullptr if it is the frame
// that was expected. Two fields may differ: payload_size, and the flag kFrameNonFinite, by which a
// sender says that it has nothing to give.
//
// Equal headers mean the same message: the stream, the step, the sender, whether it is a
// contribution or a result, of which round, and which values.
const char* frame_difference(const FrameHeader& got, const FrameHeader& expected) noexcept;

}  // namespace thinwire
