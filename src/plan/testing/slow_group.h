// For tests: a group whose ranks have slow links to the others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "thinwire/group.h"
#include "thinwire/step_plan.h"

namespace thinwire::testing {

// The link of a machine to others: since when nothing leaves over it.
struct SlowLink {
  std::mutex mutex;
  std::chrono::steady_clock::time_point free{};
};

// Messages of this rank leave one after another at the rate of `link`, and each a latency later
// than it would. Where consecutive ranks share a machine, they share its link, too, and what they
// send each other is not slow. `sent_at` says for each message when it was sent.
class SlowGroup final : public Group {
 public:
  using Clock = std::chrono::steady_clock;

  SlowGroup(
      Group& inner, LinkSpec link, int per_machine = 1,
      std::shared_ptr<SlowLink> of_machine = std::make_shared<SlowLink>(),
      std::function<Clock::time_point()> sent_at = [] { return Clock::now(); })
      : inner_(&inner),
        link_(link),
        per_machine_(per_machine),
        of_machine_(std::move(of_machine)),
        sent_at_(std::move(sent_at)) {
    set_deadline(inner.deadline());
  }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count_sent(buffer.size());
    Clock::time_point leaves = sent_at_();
    if (per_machine_ == 1 || to / per_machine_ != rank() / per_machine_) {
      const std::scoped_lock lock(of_machine_->mutex);
      of_machine_->free = std::max(of_machine_->free, leaves) +
                          seconds(link_.seconds_for(static_cast<double>(buffer.size())));
      leaves = of_machine_->free + seconds(link_.latency_seconds);
    }
    return std::make_unique<Late>(
        leaves, [this, buffer, to, tag] { return inner_->send(buffer, to, tag); });
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count_received(buffer.size());
    return inner_->receive(buffer, from, tag);
  }
  std::unique_ptr<Group> split(int colour) override {
    std::unique_ptr<Group> part = inner_->split(colour);
    auto slow = std::make_unique<SlowGroup>(*part, link_);
    slow->owned_ = std::move(part);
    return slow;
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  static Clock::duration seconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
  }

  class Late final : public Transfer {
   public:
    Late(Clock::time_point when, std::function<std::unique_ptr<Transfer>()> begin)
        : when_(when), begin_(std::move(begin)) {}
    bool done() override {
      if (transfer_ == nullptr && Clock::now() < when_) return false;
      if (transfer_ == nullptr) transfer_ = begin_();
      return transfer_->done();
    }
    std::string describe() const override { return "slow send"; }

   private:
    const Clock::time_point when_;
    const std::function<std::unique_ptr<Transfer>()> begin_;
    std::unique_ptr<Transfer> transfer_;
  };

  Group* inner_;
  std::unique_ptr<Group> owned_;
  const LinkSpec link_;
  const int per_machine_;
  const std::shared_ptr<SlowLink> of_machine_;
  const std::function<Clock::time_point()> sent_at_;
};

}  // namespace thinwire::testing
