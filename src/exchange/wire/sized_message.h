// SizedSend and SizedReceive: send and receive a message of any length, after a message of eight
// bytes with that length.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/bytes.h"
#include "exchange/step/step_context.h"
#include "exchange/wire/pending.h"

namespace thinwire {

// Under tags `tag` (the length) and `tag + 1`. Nobody waits for a round trip between the two. One
// at a time; messages between two ranks arrive in the order of sending. Stays where it is while
// under way.
class SizedSend {
 public:
  // `bytes` stay untouched until done.
  void start(Group& group, std::span<const std::byte> bytes, int to, int tag) {
    size_ = bytes.size();
    size_out_.set(group.send(byte_view(size_), to, tag));
    bytes_out_.set(group.send(bytes, to, tag + 1));
  }

  bool done() {
    const bool size_done = size_out_.done();
    return bytes_out_.done() && size_done;
  }

  // Under way, for errors; null when there is none.
  const Transfer* transfer() const noexcept {
    return size_out_.transfer() != nullptr ? size_out_.transfer() : bytes_out_.transfer();
  }

 private:
  uint64_t size_ = 0;
  Pending size_out_, bytes_out_;
};

class SizedReceive {
 public:
  // `limit` is part of what ranks agreed on: a longer message is a broken peer's.
  void expect(Group& group, int from, int tag, uint64_t limit) {
    from_ = from;
    tag_ = tag;
    limit_ = limit;
    stage_ = Stage::kSize;
    size_in_.set(group.receive(writable_byte_view(size_), from, tag));
  }

  // Goes as far as it can without waiting; whether it got anywhere. Throws Error(kCorrupt), naming
  // the sender, for a length beyond the limit: where its next message begins nobody knows.
  bool advance(StepContext& context) {
    if (stage_ == Stage::kSize && size_in_.done()) {
      if (size_ > limit_) refuse(context.number_of(from_));
      bytes_ = context.buffers.take(size_);
      bytes_in_.set(context.group.receive(bytes_.bytes(), from_, tag_ + 1));
      stage_ = Stage::kBytes;
      return true;
    }
    if (stage_ != Stage::kBytes || !bytes_in_.done()) return false;
    stage_ = Stage::kArrived;
    return true;
  }

  bool arrived() const noexcept { return stage_ == Stage::kArrived; }
  std::span<const std::byte> bytes() const noexcept { return bytes_.bytes(); }

  // The message is used up.
  void release(StepContext& context) {
    context.buffers.give(bytes_);
    stage_ = Stage::kIdle;
  }

  const Transfer* transfer() const noexcept {
    return stage_ == Stage::kSize ? size_in_.transfer() : bytes_in_.transfer();
  }

 private:
  enum class Stage : uint8_t { kIdle, kSize, kBytes, kArrived };

  [[noreturn]] void refuse(int sender) const {
    throw Error(ErrorCode::kCorrupt, "exchange: rank " + std::to_string(sender) + " announces " +
                                         std::to_string(size_) + " bytes where at most " +
                                         std::to_string(limit_) + " are possible");
  }

  int from_ = 0;
  int tag_ = 0;
  uint64_t limit_ = 0;
  uint64_t size_ = 0;
  Stage stage_ = Stage::kIdle;
  Buffer bytes_;  // before what receives into it, which is withdrawn first
  Pending size_in_, bytes_in_;
};

}  // namespace thinwire
