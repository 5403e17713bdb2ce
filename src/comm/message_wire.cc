// MessageWire: a head with the length goes before each message.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/message_wire.h"

#include <algorithm>
#include <exception>
#include <string>

#include "core/bytes.h"
#include "thinwire/status.h"

namespace thinwire {

void MessageWire::send(std::span<const std::byte> bytes, uint64_t note, const MessageOrder& order,
                       int to, int tag) {
  auto head = std::make_unique<Head>(Head{.size = bytes.size(), .note = note, .order = order});
  const std::span<const std::byte> head_bytes = byte_view(*head);
  Sent& sent = sent_.emplace_back(Sent{.to = to, .head = std::move(head), .transfers = {}});
  sent.transfers[0] = group_->send(head_bytes, to, tag);
  sent.transfers[1] = group_->send(bytes, to, tag);
  look_at_sent(to);
}

// Forgets what has ended. The loss of a rank is an error of what is sent to it alone.
void MessageWire::look_at_sent(int to) {
  std::exception_ptr lost;
  for (Sent& sent : sent_) {
    for (std::unique_ptr<Transfer>& transfer : sent.transfers) {
      try {
        if (transfer && transfer->done()) transfer.reset();
      } catch (const Error&) {
        transfer.reset();
        if (sent.to == to) lost = std::current_exception();
      }
    }
  }
  std::erase_if(sent_, [](const Sent& sent) { return !sent.transfers[0] && !sent.transfers[1]; });
  if (lost) std::rethrow_exception(lost);
}

WireMessage MessageWire::receive(size_t limit, int from, int tag, const MessageOrder& expected,
                                 std::chrono::milliseconds deadline) {
  Lane& lane = lanes_[{from, tag}];
  lane.limit = std::max(lane.limit, limit);
  group_->set_deadline(deadline);
  const Group::Instant until = group_->give_up_at();
  size_t dropped = 0;
  try {
    for (;; ++dropped) {
      receive_next(lane, from, tag, until);
      if (lane.head.order >= expected) break;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout || dropped == 0) throw;
    throw Error(ErrorCode::kTimeout, std::string(error.what()) + "; " + std::to_string(dropped) +
                                         " that came meanwhile are of earlier steps or objects");
  }
  return {.bytes = std::move(lane.bytes),
          .size = lane.head.size,
          .note = lane.head.note,
          .order = lane.head.order};
}

// Goes on where a receive that failed ended.
void MessageWire::receive_next(Lane& lane, int from, int tag, Group::Instant until) {
  if (!lane.has_head) {
    if (!lane.head_transfer)
      lane.head_transfer = group_->receive(writable_byte_view(lane.head), from, tag);
    group_->wait_until(std::span(&lane.head_transfer, 1), until);
    lane.head_transfer.reset();
    lane.has_head = true;
  }
  if (!lane.transfer) {
    if (lane.head.size > lane.limit)
      throw Error(ErrorCode::kCorrupt, "boundary: rank " + std::to_string(from) +
                                           " announces a message of " +
                                           std::to_string(lane.head.size) + " bytes, more than " +
                                           std::to_string(lane.limit));
    lane.bytes = std::make_unique_for_overwrite<std::byte[]>(lane.head.size);
    lane.transfer = group_->receive(std::span(lane.bytes.get(), lane.head.size), from, tag);
  }
  group_->wait_until(std::span(&lane.transfer, 1), until);
  lane.transfer.reset();
  lane.has_head = false;
}

}  // namespace thinwire
