// Frames: a header, a payload and a checksum over both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "thinwire/status.h"

namespace thinwire {

inline constexpr size_t kFrameHeaderSize = 48;  // bytes; layout in docs/wire-format.md

struct FrameHeader {
  uint8_t codec = 0;        // wire id of the codec
  uint8_t flags = 0;        // kFrame... below
  uint8_t round = 0;        // number of the round, from 0; 0 if kFrameRound is not set
  uint16_t sender = 0;      // rank
  uint32_t generation = 0;  // of the group: grows when its members change
  uint32_t stream = 0;      // index in the agreed list of streams
  // The last four are at most kFrameFieldMax.
  uint64_t step = 0;
  uint64_t place = 0;         // first value's index in the stream or round; sparse-reduce: region
  uint64_t count = 0;         // values that the payload encodes
  uint64_t payload_size = 0;  // bytes that follow the header
};

inline constexpr uint64_t kFrameFieldMax = (uint64_t{1} << 48) - 1;

// The sender's values were not finite. There is no payload, and every rank must skip the step.
inline constexpr uint8_t kFrameNonFinite = 1;

// The payload is an offer or a result of a round before encoding, not a codec's payload.
inline constexpr uint8_t kFrameRound = 2;

// The payload is an owner's result of the contributions of all ranks, not a contribution itself.
inline constexpr uint8_t kFrameResult = 4;

// Writes the header of a frame whose payload is already at frame.subspan(kFrameHeaderSize). Throws
// Error(kContract) unless frame.size() == kFrameHeaderSize + header.payload_size and every number
// fits its field.
void seal_frame(const FrameHeader& header, std::span<std::byte> frame);

struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

// Reads the frame at the start of `bytes` and ignores what follows it. Fails on a foreign magic or
// version, unknown flags, a size beyond the bytes, or a wrong checksum.
Result<Frame> read_frame(std::span<const std::byte> bytes);

}  // namespace thinwire
