// ThreadedExchange: callers hand tensors over; its own thread compresses and sends them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "exchange/engine/intake.h"
#include "exchange/engine/staging.h"
#include "exchange/members/roll_call.h"
#include "exchange/runner/runner.h"
#include "exchange/step/stopwatch.h"
#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Does `work` on all ranks; an error of one of them is thrown on all, and says of which.
void on_all(Group& group, const char* what, const std::function<void()>& work);

// A loss, and the identity of the lost rank's store, or 0 where it is not known.
struct KnownLoss {
  LostRank lost;
  uint64_t store = 0;
};

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
  Regrouped regroup(Group& group, uint32_t generation) override;

 private:
  // What became of the last step.
  enum class LastStep : uint8_t {
    kNothing,   // it ended
    kHeld,      // it counts, unless settle takes it back
    kUnderWay,  // it is under way, or failed there
    kVoting,    // the same, once all that this rank sends is encoded and all that it gets has come
  };

  // What became of an attempt to begin a bucket.
  enum class BucketStart : uint8_t {
    kNotStarted,  // the caller has not started all of its tensors
    kOnItsWay,    // they are on their way from the device; nothing wakes this thread when they come
    kBegun,
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
  BucketStart try_begin_bucket(size_t bucket, std::chrono::microseconds patience);
  void check_arrival(size_t bucket, Clock::time_point since) const;
  void check_deadline(Clock::time_point quiet_since);
  std::exception_ptr judge(const StepReport& report);

  Regrouped regroup_now(Group& group, uint32_t generation);
  Member member() const;
  void end_failed_step(const RollCall& call, size_t me);
  void take_step_back();
  void build(Group& group);
  void share_state(Group& group, const RollCall& call, size_t me);
  void count_debts(Group& group, uint64_t step);
  void hear_debts();
  std::vector<KnownLoss> share_losses(Group& group, const RollCall& call) const;

  // A caller's thread writes a member between two steps, or while the exchange's thread does not
  // run, where nothing else is said. The exchange's thread reads members during steps.
  Group* group_ = nullptr;
  Store& store_;
  const std::vector<TensorSpec> tensors_;
  ExchangeOptions options_;
  Sections sections_;
  size_t bucket_count_ = 0;
  std::vector<std::vector<OwnedRange>> owned_;  // by rank; of results that are shards
  std::vector<Momentum> momenta_;               // of tensors, as set_momentum gave them; or empty
  std::unique_ptr<Runner> runner_;              // null before this is a member of a group
  std::unique_ptr<Staging> staging_;            // of tensors on a device; null without one

  // Callers' threads and the exchange's thread change it at any time; it has a lock.
  Intake intake_;

  // The exchange's thread writes these at the beginning and end of a step, and settle and regroup
  // in a caller's thread while none is under way. The atomic ones may be read at any time.
  std::atomic<LastStep> last_step_ = LastStep::kNothing;
  int skipped_in_a_row_ = 0;  // steps
  // The verdict on the last step that ended, whatever became of the next one.
  uint64_t verdict_word_ = 0;
  // Whether a step has ended with a verdict of all since unconfirmed_losses_ were told.
  std::atomic<bool> losses_confirmed_ = false;
  // Whether this rank was to take over what others have, and no step has counted since.
  std::atomic<bool> waits_for_first_step_ = false;

  // The group of the last generation. Only hand_over, regroup and the constructor write these, in a
  // caller's thread.
  uint32_t generation_ = 0;
  int rank_ = -1, size_ = 0;  // 0: of no group yet
  // The number of ranks of which this rank's memories are those of one; 0: the memories are new.
  size_t memories_scaled_for_ranks_ = 0;
  std::vector<LostRank> last_told_debts_;      // by rank
  std::vector<uint64_t> store_ids_;            // by rank; 0: not told, as in make_exchange
  std::vector<bool> handed_over_;              // by rank: what it owes went to another rank
  std::vector<KnownLoss> unconfirmed_losses_;  // of which not all members may have heard
  std::optional<StepReport> ended_;  // of a step that a regroup ended, if that failed afterwards

  std::thread thread_;  // the exchange's; callers' threads start and join it
};

}  // namespace thinwire
