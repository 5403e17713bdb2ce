// The comparison of frame headers that exchanges, pipelines and synchronisers use.
// SPDX-License-Identifier: Apache-2.0
#include "stream/frame_check.h"

namespace thinwire {

const char* frame_difference(const FrameHeader& got, const FrameHeader& expected) noexcept {
  if (got.sender != expected.sender) return "sender";
  if (got.generation != expected.generation) return "generation";
  if (got.stream != expected.stream) return "stream";
  if (got.codec != expected.codec) return "codec";
  if (got.step != expected.step) return "step";
  if (got.place != expected.place) return "place";
  if (got.count != expected.count) return "number of values";
  if ((got.flags | kFrameNonFinite) != (expected.flags | kFrameNonFinite)) return "kind of message";
  if (got.round != expected.round) return "round";
  return nullptr;
}

}  // namespace thinwire
