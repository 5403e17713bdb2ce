// Nobody waits between the length and what follows it.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/root_message.h"

#include <algorithm>
#include <string>

namespace thinwire {

void RootMessage::begin(size_t root, size_t limit) {
  root_ = root;
  limit_ = limit;
  sized_ = arrived_ = false;
  sent_ = root != context_.rank();
  if (root == context_.rank()) {
    message_ = context_.buffers.take(limit);
    return;
  }
  const auto word = std::as_writable_bytes(std::span(&size_, 1));
  size_in_.set(context_.group.receive(word, static_cast<int>(root), tag_));
}

void RootMessage::send(size_t size) {
  size_ = size;
  sized_ = arrived_ = true;
  const auto word = std::as_bytes(std::span(&size_, 1));
  for (size_t step = 1; step < sends_.size(); ++step) {
    const size_t rank = (context_.rank() + step) % sends_.size();
    sends_[rank].size.set(context_.group.send(word, static_cast<int>(rank), tag_));
    sends_[rank].message.set(context_.group.send(bytes(), static_cast<int>(rank), tag_ + 1));
  }
}

bool RootMessage::advance() {
  if (!sized_ && root_ != context_.rank() && size_in_.done()) {
    if (size_ > limit_)
      throw Error(ErrorCode::kCorrupt, "exchange: rank " + std::to_string(root_) + " announces " +
                                           std::to_string(size_) + " bytes where at most " +
                                           std::to_string(limit_) + " are possible");
    message_ = context_.buffers.take(size_);
    message_in_.set(context_.group.receive(message_.bytes(), static_cast<int>(root_), tag_ + 1));
    sized_ = true;
    return true;
  }
  if (sized_ && !arrived_ && message_in_.done()) return arrived_ = true;
  if (arrived_ && !sent_)
    return sent_ = std::all_of(sends_.begin(), sends_.end(),
                               [](Send& send) { return send.size.done() && send.message.done(); });
  return false;
}

const Transfer* RootMessage::awaited() const noexcept {
  for (const Pending* one : {&size_in_, &message_in_})
    if (one->transfer() != nullptr) return one->transfer();
  for (const Send& send : sends_)
    for (const Pending* one : {&send.size, &send.message})
      if (one->transfer() != nullptr) return one->transfer();
  return nullptr;
}

}  // namespace thinwire
