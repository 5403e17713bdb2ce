// RootMessage: sends the length and the frames behind it without waiting in between.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/root_message.h"

#include <algorithm>

namespace thinwire {

void RootMessage::begin(size_t root, size_t limit) {
  is_root_ = root == context_.rank();
  arrived_ = false;
  sent_ = !is_root_;
  if (is_root_)
    message_ = context_.buffers.take(limit);
  else
    message_in_.expect(context_.group, static_cast<int>(root), tag_, limit);
}

void RootMessage::send(size_t size) {
  size_ = size;
  arrived_ = true;
  context_.for_others(
      sends_, [&](int rank, SizedSend& send) { send.start(context_.group, bytes(), rank, tag_); });
}

bool RootMessage::advance() {
  if (!is_root_ && !arrived_) {
    const bool moved = message_in_.advance(context_);
    arrived_ = message_in_.arrived();
    return moved;
  }
  if (!arrived_ || sent_) return false;
  return sent_ = std::all_of(sends_.begin(), sends_.end(), [](SizedSend& s) { return s.done(); });
}

void RootMessage::release() {
  if (is_root_)
    context_.buffers.give(message_);
  else
    message_in_.release(context_);
}

const Transfer* RootMessage::awaited() const noexcept {
  if (!is_root_ && !arrived_) return message_in_.transfer();
  for (const SizedSend& send : sends_)
    if (send.transfer() != nullptr) return send.transfer();
  return nullptr;
}

}  // namespace thinwire
