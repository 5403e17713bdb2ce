// Writes the messages of boundaries, and reads and checks them.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/boundary_message.h"

#include <cstring>
#include <string>

#include "core/bytes.h"
#include "core/checksum.h"
#include "stream/frame_check.h"

namespace thinwire {
namespace {

FrameHeader header_of(const BoundaryPlan& plan, const Visit& visit, size_t count) {
  return {.codec = plan.codec->info().id,
          .sender = plan.spec.sender,
          .generation = plan.spec.generation,
          .stream = plan.spec.stream,
          .step = visit.step,
          .count = count};
}

}  // namespace

uint64_t ids_checksum(const Visit& visit) {
  return checksum(std::as_bytes(visit.ids), byte_view(visit.batch));
}

size_t seal_message(const BoundaryPlan& plan, const Visit& visit, size_t count, uint64_t history,
                    size_t full, size_t body, std::span<std::byte> message) {
  FrameHeader header = header_of(plan, visit, count);
  header.payload_size = sizeof(MessageHead) + body;
  ByteWriter(message.subspan(kFrameHeaderSize))
      .put(MessageHead{.history = history,
                       .ids = ids_checksum(visit),
                       .micro_batch = static_cast<uint32_t>(visit.micro_batch),
                       .full = static_cast<uint32_t>(full)});
  seal_frame(header, message.first(kBodyOffset + body));
  return kBodyOffset + body;
}

size_t seal_non_finite(const BoundaryPlan& plan, const Visit& visit, size_t count,
                       std::span<std::byte> message) {
  FrameHeader header = header_of(plan, visit, count);
  header.flags = kFrameNonFinite;
  seal_frame(header, message.first(kFrameHeaderSize));
  return kFrameHeaderSize;
}

Result<OpenedMessage> open_message(const BoundaryPlan& plan, const Visit& visit, size_t count,
                                   uint64_t history, std::span<const std::byte> message) {
  const auto fail = [&](ErrorCode code, const std::string& why) {
    return Status::fail(
        code, plan.origin() + "from rank " + std::to_string(plan.spec.sender) + ": " + why);
  };
  Result<Frame> frame = read_frame(message);
  if (!frame) return fail(frame.status().code(), frame.status().message());
  const auto& [header, payload] = frame.value();
  if (message.size() != kFrameHeaderSize + payload.size())
    return fail(ErrorCode::kBadLength, "bytes after the frame");
  if (const char* what = frame_difference(header, header_of(plan, visit, count)); what != nullptr)
    return fail(ErrorCode::kMismatch, std::string("another ") + what + " than expected");
  if (header.flags == kFrameNonFinite)
    return fail(ErrorCode::kNonFinite, "its values are not finite");

  ByteReader reader(payload);
  const auto head = reader.get<MessageHead>();
  if (!reader.ok()) return fail(ErrorCode::kBadLength, "cut short");
  if (head.micro_batch != visit.micro_batch)
    return fail(ErrorCode::kMismatch, "micro-batch " + std::to_string(head.micro_batch) +
                                          " where " + std::to_string(visit.micro_batch) +
                                          " is due");
  if (head.ids != ids_checksum(visit))
    return fail(ErrorCode::kMismatch, "other sample or batch ids than this end's");
  if (head.history != history)
    return fail(ErrorCode::kMismatch, "its estimates are not those of this end; invalidate both");
  return OpenedMessage{.full = head.full, .body = reader.take(reader.remaining())};
}

uint64_t message_checksum(std::span<const std::byte> message) {
  uint64_t sum;
  std::memcpy(&sum, message.data() + kFrameHeaderSize - sizeof sum, sizeof sum);
  return sum;
}

}  // namespace thinwire
