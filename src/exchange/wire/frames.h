// Functions that read, check, pad and add the frames of an exchange, and note their faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exchange/step/step_context.h"
#include "stream/frame_check.h"
#include "thinwire/codec.h"
#include "thinwire/frame.h"

namespace thinwire {

// What became of a frame, and its size; 0 when there is no telling where it ends.
struct FrameOutcome {
  enum class Kind : uint8_t { kAdded, kFlagged, kCorrupt };

  Kind kind = Kind::kCorrupt;
  size_t size = 0;
};

// Zeroes what follows a frame of `size` bytes in its room: a flagged one is shorter, and old memory
// must not leave. Throws Error(kContract) when a frame that holds values does not fill its room.
void pad_frame(const Codec& codec, std::span<std::byte> room, size_t size);

// Reads the frame of `expected` at the start of `bytes` and gives its payload to add(payload),
// which says whether it was good. Notes its sender's fault when it was not, or the frame is not
// that of `expected` (but for flags and payload size).
template <typename Add>
FrameOutcome read_frame_with(StepContext& context, const FrameHeader& expected,
                             std::span<const std::byte> bytes, const Add& add) {
  const auto corrupt = [&](size_t size) {
    context.faults.add(ErrorCode::kCorrupt, expected.stream, expected.sender);
    return FrameOutcome{.kind = FrameOutcome::Kind::kCorrupt, .size = size};
  };
  Result<Frame> read = read_frame(bytes);
  if (!read) return corrupt(0);
  const Frame& frame = read.value();
  const FrameHeader& header = frame.header;
  const size_t size = kFrameHeaderSize + frame.payload.size();
  if (frame_difference(header, expected) != nullptr) return corrupt(size);
  if ((header.flags & kFrameNonFinite) != 0)
    return {.kind = FrameOutcome::Kind::kFlagged, .size = size};
  if (!add(frame.payload)) return corrupt(size);
  return {.kind = FrameOutcome::Kind::kAdded, .size = size};
}

// The header of what an owner makes of such contributions.
inline FrameHeader as_result(FrameHeader contribution) noexcept {
  contribution.flags |= kFrameResult;
  return contribution;
}

// Whether a contribution was added. Notes that its sender had values that are not finite, if it
// flagged them.
inline bool was_added(StepContext& context, const FrameHeader& expected,
                      const FrameOutcome& outcome) {
  if (outcome.kind == FrameOutcome::Kind::kFlagged)
    context.faults.add(ErrorCode::kNonFinite, expected.stream, expected.sender);
  return outcome.kind == FrameOutcome::Kind::kAdded;
}

// Adds weight x the frame at the start of `bytes` to `out`. Faults are noted as
// by read_frame_with.
FrameOutcome add_frame(StepContext& context, const FrameHeader& expected, const Decoder& decoder,
                       std::span<const std::byte> bytes, float weight, std::span<float> out);

}  // namespace thinwire
