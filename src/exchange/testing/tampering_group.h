// For tests: a group that changes bytes of received messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "exchange/testing/watched_transfer.h"
#include "thinwire/group.h"

namespace thinwire::testing {

// Sees every message that was received: who sent it, under which tag, and its bytes, to change.
using Tamper = std::function<void(int from, int tag, std::span<std::byte> message)>;

// Passes everything on to `inner`; groups split from it tamper too.
class TamperingGroup final : public Group {
 public:
  TamperingGroup(Group& inner, Tamper tamper) : inner_(&inner), tamper_(std::move(tamper)) {
    set_deadline(inner.deadline());
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count_sent(buffer.size());
    return inner_->send(buffer, to, tag);
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count_received(buffer.size());
    return std::make_unique<WatchedTransfer>(
        inner_->receive(buffer, from, tag),
        [this, buffer, from, tag] { tamper_(from, tag, buffer); });
  }

  std::unique_ptr<Group> split(int colour) override {
    std::unique_ptr<Group> part = inner_->split(colour);
    auto wrapped = std::make_unique<TamperingGroup>(*part, tamper_);
    wrapped->owned_ = std::move(part);
    last_split_ = wrapped.get();
    return wrapped;
  }

  // The group that split gave last: the channel of an exchange, whose deadline a test may change.
  Group& last_split() noexcept { return *last_split_; }

  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override {
    inner_->set_deadline(deadline());
    inner_->library_all_reduce(values);
  }

 private:
  Group* inner_;
  std::unique_ptr<Group> owned_;
  Group* last_split_ = nullptr;
  Tamper tamper_;
};

}  // namespace thinwire::testing
