// ThreadedExchange: callers hand tensors over; its own thread compresses and sends them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "exchange/engine/intake.h"
#include "exchange/engine/runner.h"
#include "exchange/engine/sections.h"
#include "exchange/engine/staging.h"
#include "exchange/engine/step_context.h"
#include "exchange/members/roll_call.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Does `work` on all ranks; an error of one of them is thrown on all, and says of which.
void on_all(Group& group, const char* what, const std::function<void()>& work);

// Throws the mistakes in options that all ranks of a group find alike.
Sections settle_for_group(const ExchangeOptions& options, const std::vector<TensorSpec>& tensors,
                          int ranks);

class ThreadedExchange final : public Exchange {
 public:
  ThreadedExchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                   ExchangeOptions options, Sections sections, std::unique_ptr<Runner> runner);

  // One that is no member of a group yet: regroup makes it one.
  ThreadedExchange(Store& store, std::vector<TensorSpec> tensors, ExchangeOptions options);

  ~ThreadedExchange() override;

  Ticket start(size_t index, TensorView tensor) override;
  StepReport finish() override;
  StepReport wait(Ticket ticket) override { return intake_.wait(ticket); }
  const std::vector<StreamSpec>& streams() const noexcept override { return runner_->streams(); }
  const std::vector<OwnedRange>& owned(int rank) const override;
  void set_step(uint64_t step) override;
  void set_momentum(std::span<const Momentum> of_tensors) override;
  void set_weight(double weight) override;
  void abstain(Abstention what) override;
  void set_weighted(bool weighted) override;
  const ExchangeOptions& options() const noexcept override { return options_; }
  void change(const ExchangeOptions& asked) override;

  void settle(bool counts) override;
  void hand_over(bool leaves) override;
  Regrouped regroup(Group& group, uint32_t epoch) override;

 private:
  // Of the last step.
  enum class Open : uint8_t {
    kNothing,   // it ended
    kHeld,      // it counts, unless settle takes it back
    kUnderWay,  // it is under way, or failed there
    kVoting,    // the same, once all that this rank sends is encoded and all that it gets has come
  };

  // A loss, and the identity of the lost rank's store, or 0 where it is not known.
  struct KnownLoss {
    LostRank lost;
    uint64_t store = 0;
  };

  void change_now(const ExchangeOptions& asked, bool& begun);
  void require_settled() const;
  void tell_streams();
  void follow();
  void start_thread();
  void stop_thread();
  void run() noexcept;
  void give_up(const std::string& why);
  void run_buckets(uint64_t step);
  void check_arrival(size_t bucket, Clock::time_point since) const;
  void check_deadline(Clock::time_point quiet_since);
  std::exception_ptr judge(const StepReport& report);

  Regrouped regroup_now(Group& group, uint32_t epoch);
  Member member() const;
  void end_failed_step(const RollCall& call, size_t me);
  void build(Group& group);
  void share_state(Group& group, const RollCall& call, size_t me);
  void count_debts(Group& group, uint64_t step);
  void hear_debts();
  std::vector<KnownLoss> share_losses(Group& group, const RollCall& call) const;

  Group* group_ = nullptr;
  Store& store_;
  const std::vector<TensorSpec> tensors_;
  ExchangeOptions options_;
  Sections sections_;
  size_t bucket_count_ = 0;
  int skipped_ = 0;                             // in a row
  std::vector<std::vector<OwnedRange>> owned_;  // by rank; of results that are shards
  std::vector<Momentum> momenta_;               // of tensors, as set_momentum gave them; or empty
  std::unique_ptr<Runner> runner_;              // null before it is a member of a group
  std::unique_ptr<Staging> staging_;            // of tensors on a device
  Intake intake_;
  std::atomic<Open> open_ = Open::kNothing;

  // Of the group of the last epoch:
  uint32_t epoch_ = 0;
  int rank_ = -1, size_ = 0;       // 0: of none yet
  size_t debtors_ = 0;             // its memories are those of one rank of so many; 0: new ones
  std::vector<LostRank> debts_;    // by rank
  std::vector<uint64_t> stores_;   // by rank: identities; 0: not told, as in make_exchange
  std::vector<bool> left_;         // by rank: handed over
  std::vector<KnownLoss> losses_;  // of which not all members may have heard
  std::atomic<bool> all_heard_ =
      false;  // a step has ended with a verdict of all since they were told
  std::atomic<bool> lacks_ =
      false;  // it was to take over what others have, and no step has counted since
  std::optional<StepReport> ended_;  // of a step that a regroup ended, if that failed afterwards
  uint64_t word_ =
      0;  // on which ranks agreed at the end of the last step that ended, whatever became of the next
  std::thread thread_;
};

}  // namespace thinwire
