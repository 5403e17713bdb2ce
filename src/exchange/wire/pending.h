// Pending: holds a transfer until it is done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "thinwire/group.h"

namespace thinwire {

// A transfer, or none any more. Not shared between threads.
class Pending {
 public:
  void set(std::unique_ptr<Transfer> transfer) { transfer_ = std::move(transfer); }

  // Returns whether nothing is under way any more. Throws what Transfer::done throws.
  bool done() {
    if (transfer_ != nullptr && transfer_->done()) transfer_.reset();
    return transfer_ == nullptr;
  }

  // Returns the transfer under way, for errors; null when there is none.
  const Transfer* transfer() const noexcept { return transfer_.get(); }

 private:
  std::unique_ptr<Transfer> transfer_;
};

}  // namespace thinwire
