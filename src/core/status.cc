// The names of the error codes.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/status.h"

namespace thinwire {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kBadLength:
      return "bad length";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnknownName:
      return "unknown name";
    case ErrorCode::kBadOption:
      return "bad option";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kNonFinite:
      return "non-finite";
    case ErrorCode::kContract:
      return "broken contract";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kUnsupported:
      return "unsupported";
  }
  return "unknown";
}

}  // namespace thinwire
