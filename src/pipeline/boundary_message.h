// The message of a boundary: a frame whose payload begins with what both ends must agree on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pipeline/boundary_plan.h"
#include "thinwire/frame.h"

namespace thinwire {

//   u64 history      of what both ends remember, before this step; 0 if only the sender does
//   u64 ids          XXH3-64 (seed 0) of u64 ids[] and then u64 batch
//   u32 micro_batch
//   u32 full         samples that are in full
//       body         their values, then the streams of the others: u32 size, payload
struct MessageHead {
  uint64_t history = 0;
  uint64_t ids = 0;
  uint32_t micro_batch = 0;
  uint32_t full = 0;
};
static_assert(sizeof(MessageHead) == 24);

inline constexpr size_t kBodyOffset = kFrameHeaderSize + sizeof(MessageHead);

uint64_t ids_checksum(const Visit& visit);

// Writes the heads in front of a body of `body` bytes at message.subspan(kBodyOffset), and returns
// the size of the message.
size_t seal_message(const BoundaryPlan& plan, const Visit& visit, size_t count, uint64_t history,
                    size_t full, size_t body, std::span<std::byte> message);

// The message of values that are not finite.
size_t seal_non_finite(const BoundaryPlan& plan, const Visit& visit, size_t count,
                       std::span<std::byte> message);

struct OpenedMessage {
  size_t full = 0;
  std::span<const std::byte> body;
};

// Fails where the message is not of this boundary, visit, history or number of values.
Result<OpenedMessage> open_message(const BoundaryPlan& plan, const Visit& visit, size_t count,
                                   uint64_t history, std::span<const std::byte> message);

// The frame's own checksum. REQUIRES: a sealed or opened message.
uint64_t message_checksum(std::span<const std::byte> message);

}  // namespace thinwire
