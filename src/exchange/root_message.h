// What one rank says to all others: the frames of streams, one after another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/step_context.h"

namespace thinwire {

// The root sends n - 1 copies of a message as gather does: eight bytes that say how long it is under
// `tag`, then the message under `tag + 1`. Not shared between threads; used for one after another.
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

  // Goes as far as it can without waiting; returns whether it got anywhere. Throws Error(kCorrupt) when
  // the root announces more than the limit.
  bool advance();
  bool done() const noexcept { return arrived_ && sent_; }

  // After done, on every rank; good until release.
  std::span<const std::byte> bytes() const noexcept { return message_.bytes().first(size_); }
  void release() { context_.buffers.give(message_); }

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  struct Send {
    Pending size, message;
  };

  StepContext& context_;
  const int tag_;
  size_t root_ = 0;
  size_t limit_ = 0;
  Buffer message_;
  uint64_t size_ = 0;
  Pending size_in_, message_in_;
  std::vector<Send> sends_;  // by rank
  bool sized_ = false;
  bool arrived_ = false;
  bool sent_ = false;
};

}  // namespace thinwire
