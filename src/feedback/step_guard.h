// Checks that the functions of a memory are called in the order of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/check.h"

namespace thinwire {

class StepGuard {
 public:
  StepGuard(std::string_view name, size_t count) : name_(name), count_(count) {}

  void prepare(size_t given) {
    THINWIRE_CHECK(given == count_, origin() + "the gradient has another length");
    prepared_ = true;
    sent_ = 0;
  }
  void prepare_part(size_t begin, size_t count) {
    THINWIRE_CHECK(begin <= count_ && count <= count_ - begin, origin() + "a part past the end");
    if (!prepared_) prepare(count_);
  }
  void sent(size_t given, size_t begin, size_t count) {
    THINWIRE_CHECK(prepared_ && given == count_, origin() + "sent without its prepare");
    THINWIRE_CHECK(begin <= count_ && count <= count_ - begin, origin() + "sent past the end");
    THINWIRE_CHECK(count <= count_ - sent_, origin() + "more was sent than the stream has");
    sent_ += count;
  }
  bool all_sent() const noexcept { return prepared_ && sent_ == count_; }
  void receive(size_t given) const {
    THINWIRE_CHECK(prepared_ && given == count_, origin() + "receive without its prepare");
  }
  void commit() {
    THINWIRE_CHECK(prepared_, origin() + "commit without prepare");
    prepared_ = false;
  }
  // For memories that must know what was left.
  void commit_all_sent() {
    THINWIRE_CHECK(prepared_ && sent_ == count_, origin() + "commit before all was sent");
    commit();
  }
  void rollback() noexcept { prepared_ = false; }

 private:
  std::string origin() const { return "feedback '" + std::string(name_) + "': "; }

  std::string_view name_;  // static
  size_t count_;
  size_t sent_ = 0;
  bool prepared_ = false;
};

}  // namespace thinwire
