// CurrentGroup: the group that a run with changing workers has at the moment, behind a reference
// that stays.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "thinwire/group.h"

namespace thinwire {

// Groups split from it are those of the group at that time, and stay so. REQUIRES: follow, before
// anything else but set_deadline.
class CurrentGroup final : public Group {
 public:
  // Goes on with `next`, to which the deadline applies. The group before ends here.
  void follow(std::unique_ptr<Group> next) {
    next->set_deadline(deadline());
    inner_ = std::move(next);
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count_sent(buffer.size());
    return inner_->send(buffer, to, tag);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count_received(buffer.size());
    return inner_->receive(buffer, from, tag);
  }

  std::unique_ptr<Group> split(int colour) override {
    inner_->set_deadline(deadline());
    return inner_->split(colour);
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  std::unique_ptr<Group> inner_;
};

}  // namespace thinwire
