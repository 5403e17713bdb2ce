// Frames of an exchange: pads them, compares them with the expected ones, and adds their values.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/frames.h"

#include <algorithm>
#include <string>

#include "core/check.h"

namespace thinwire {

void pad_frame(const Codec& codec, std::span<std::byte> room, size_t size) {
  THINWIRE_CHECK(size == room.size() || size == kFrameHeaderSize,
                 "codec '" + std::string(codec.info().name) +
                     "' is declared fixed_size, but writes fewer bytes than its maximum");
  const auto rest = room.subspan(size);
  std::fill(rest.begin(), rest.end(), std::byte{0});
}

FrameOutcome add_frame(StepContext& context, const FrameHeader& expected, const Decoder& decoder,
                       std::span<const std::byte> bytes, float weight, std::span<float> out) {
  return read_frame_with(context, expected, bytes, [&](std::span<const std::byte> payload) {
    return decoder.decode_add(payload, weight, out);
  });
}

}  // namespace thinwire
