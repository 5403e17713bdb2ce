// For tests: a group that changes messages before they leave, or keeps them back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/group.h"

namespace thinwire::testing {

// Sees every message before it is sent: to whom, under which tag, and its bytes, to change. Gives
// false for one that shall not leave.
using Censor = std::function<bool(int to, int tag, std::span<std::byte> message)>;

// Passes everything on to `inner`; groups split from it do the same.
class SendingGroup final : public Group {
 public:
  SendingGroup(Group& inner, Censor censor) : inner_(&inner), censor_(std::move(censor)) {
    set_deadline(inner.deadline());
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count_sent(buffer.size());
    std::vector<std::byte> message(buffer.begin(), buffer.end());
    if (!censor_(to, tag, message)) return std::make_unique<Sent>(std::move(message), nullptr);
    const std::span<const std::byte> bytes = message;  // stay where they are when the vector moves
    return std::make_unique<Sent>(std::move(message), inner_->send(bytes, to, tag));
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count_received(buffer.size());
    return inner_->receive(buffer, from, tag);
  }

  std::unique_ptr<Group> split(int colour) override {
    std::unique_ptr<Group> part = inner_->split(colour);
    auto wrapped = std::make_unique<SendingGroup>(*part, censor_);
    wrapped->owned_ = std::move(part);
    return wrapped;
  }

  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  class Sent final : public Transfer {
   public:
    Sent(std::vector<std::byte> message, std::unique_ptr<Transfer> transfer)
        : message_(std::move(message)), transfer_(std::move(transfer)) {}
    bool done() override { return transfer_ == nullptr || transfer_->done(); }
    std::string describe() const override { return transfer_ ? transfer_->describe() : "a send"; }

   private:
    std::vector<std::byte> message_;  // goes after the transfer
    std::unique_ptr<Transfer> transfer_;
  };

  Group* inner_;
  std::unique_ptr<Group> owned_;
  Censor censor_;
};

}  // namespace thinwire::testing
