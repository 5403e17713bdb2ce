// AttackingGroup: keeps frames back, or changes their payloads.
// SPDX-License-Identifier: Apache-2.0
#include "train/attacking_group.h"

#include <string>
#include <utility>
#include <vector>

#include "exchange/step/message_tags.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

// Of a message that may have been kept back.
class AttackedSend final : public Transfer {
 public:
  AttackedSend(std::vector<std::byte> bytes, std::unique_ptr<Transfer> transfer)
      : bytes_(std::move(bytes)), transfer_(std::move(transfer)) {}
  bool done() override { return transfer_ == nullptr || transfer_->done(); }
  std::string describe() const override {
    return transfer_ == nullptr ? "a send that is kept back" : transfer_->describe();
  }

 private:
  std::vector<std::byte> bytes_;  // goes after the transfer
  std::unique_ptr<Transfer> transfer_;
};

// Flips a bit of the last value of the first frame, whose seal is good again after that.
void change_values(std::span<std::byte> message) {
  Result<Frame> frame = read_frame(message);
  if (!frame || frame.value().payload.empty()) return;
  const FrameHeader header = frame.value().header;
  const auto bytes = message.first(kFrameHeaderSize + header.payload_size);
  bytes.back() ^= std::byte{1};
  seal_frame(header, bytes);
}

class AttackingGroup final : public Group {
 public:
  AttackingGroup(MessageAttack attack, Group& inner) : attack_(attack), inner_(&inner) {
    set_deadline(inner.deadline());
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count_sent(buffer.size());
    const bool attacked =
        tag < kBucketTagsEnd && (attack_ == MessageAttack::kSilence || to % 2 == 1);
    if (!attacked) return inner_->send(buffer, to, tag);
    std::vector<std::byte> bytes(buffer.begin(), buffer.end());
    if (attack_ == MessageAttack::kSilence)
      return std::make_unique<AttackedSend>(std::move(bytes), nullptr);
    change_values(bytes);
    const std::span<const std::byte> changed = bytes;  // stays where it is when the vector moves
    return std::make_unique<AttackedSend>(std::move(bytes), inner_->send(changed, to, tag));
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count_received(buffer.size());
    return inner_->receive(buffer, from, tag);
  }

  std::unique_ptr<Group> split(int colour) override {
    std::unique_ptr<Group> part = inner_->split(colour);
    auto attacking = std::make_unique<AttackingGroup>(attack_, *part);
    attacking->owned_ = std::move(part);
    return attacking;
  }

  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  const MessageAttack attack_;
  Group* inner_;
  std::unique_ptr<Group> owned_;
};

}  // namespace

std::unique_ptr<Group> make_attacking_group(MessageAttack attack, Group& group) {
  return std::make_unique<AttackingGroup>(attack, group);
}

}  // namespace thinwire
