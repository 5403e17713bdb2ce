// RootMessage: a message of one rank to all others: the frames of streams, one after another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/wire/sized_message.h"

namespace thinwire {

// The root sends n - 1 copies of a message as gather does: eight bytes that say how long it is
// under `tag`, then the message under `tag + 1`. Not shared between threads; used for one after
// another.
class RootMessage {
 public:
  // Messages are at most `limit` bytes long.
  RootMessage(StepContext& context, int tag)
      : context_(context), tag_(tag), sends_(context.ranks()) {}

  // On the root: memory for the message. Elsewhere: waits for it.
  void begin(size_t root, size_t limit);
  std::span<std::byte> room() noexcept { return message_.bytes(); }

  // On the root: sends the first `size` bytes of room().
  void send(size_t size);

  // Goes as far as it can without waiting; returns whether it got anywhere. Throws Error(kCorrupt)
  // when the root announces more than the limit.
  bool advance();
  bool done() const noexcept { return arrived_ && sent_; }

  // After done, on every rank; good until release.
  std::span<const std::byte> bytes() const noexcept {
    return is_root_ ? message_.bytes().first(size_) : message_in_.bytes();
  }
  void release();

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  StepContext& context_;
  const int tag_;
  bool is_root_ = false;
  Buffer message_;   // the root's
  size_t size_ = 0;  // of it
  SizedReceive message_in_;
  std::vector<SizedSend> sends_;  // by rank
  bool arrived_ = false;
  bool sent_ = false;
};

}  // namespace thinwire
