// For tests: a transfer that says when it is done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "thinwire/group.h"

namespace thinwire::testing {

// Calls `finished` once, in the call of done that first returns true.
class WatchedTransfer final : public Transfer {
 public:
  WatchedTransfer(std::unique_ptr<Transfer> inner, std::function<void()> finished)
      : inner_(std::move(inner)), finished_(std::move(finished)) {}

  bool done() override {
    if (!inner_->done()) return false;
    if (finished_) std::exchange(finished_, nullptr)();
    return true;
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<Transfer> inner_;
  std::function<void()> finished_;
};

}  // namespace thinwire::testing
