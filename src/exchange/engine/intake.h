// Intake: hands tensors from the caller's threads to the exchange's thread, and reports of finished
// steps back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "exchange/engine/staging.h"
#include "exchange/layout/plan.h"
#include "thinwire/exchange.h"

namespace thinwire {

// Functions may be called from any thread, but for those whose comment names a thread. A step is
// open from its first start, or from finish, and closed to further tensors once all were started or
// finish was called.
class Intake {
 public:
  // `staging` is null, or where tensors of a device are fetched; it outlives this.
  Intake(const Plan& plan, std::vector<TensorSpec> tensors, Staging* staging);

  // What callers do, as Exchange says.
  Ticket start(size_t index, const TensorView& view);
  // `may_open` throws if no step may begin; it is called if this one would begin without a tensor.
  StepReport finish(const std::function<void()>& may_open);
  StepReport wait(Ticket ticket);
  void set_step(uint64_t step);

  // Does what the exchange's thread must not see half done. Throws Error(kContract) during a step.
  void between_steps(const char* what, const std::function<void()>& work);

  // After an error, or stop: steps begin again, with `step`. REQUIRES: the exchange's thread has
  // ended.
  void restart(uint64_t step);

  // Whether every call throws an error.
  bool has_failed() const;

  // Inside between_steps, or while the exchange's thread does not run: the next step's number, and
  // another plan of the same tensors from that step on.
  uint64_t next_step() const noexcept { return step_; }
  void follow(const Plan& plan);

  // The rest is for the exchange's thread, except stop.

  // Blocks until a step is open; returns its number through `step`. False when there will be none.
  // Throws Error(kPeerLost) if the exchange is destroyed while a step is open that has not all of
  // its tensors.
  bool await_step(uint64_t& step);

  static constexpr std::chrono::microseconds kForever = std::chrono::microseconds::max();

  // Blocks, up to `patience`, until all tensors of the bucket were started or never will be. Throws
  // Error(kPeerLost) when stopped before.
  bool await_bucket(size_t bucket, std::chrono::microseconds patience);

  // Blocks, up to `patience`, until no tensor can be started any more. Throws as await_bucket does.
  bool await_closed(std::chrono::microseconds patience);

  // Tensors that no bucket before this one has, and the memory of one: none when it was not
  // started. REQUIRES: the bucket is ready; its views stay as they are until the step ends.
  const std::vector<size_t>& tensors_of(size_t bucket) const { return tensors_of_[bucket]; }
  TensorView view(size_t tensor);

  // Whether the tensors of a bucket that is ready are in the processor's memory.
  bool arrived(size_t bucket) const;

  // The step is over, and with it the exchange when there is an `error`: every call throws it.
  void end_step(StepReport report, std::exception_ptr error = nullptr);
  void fail(std::exception_ptr error);

  // Ends the exchange: a closed step is still run, an open one is given up.
  void stop();

 private:
  void forget_starts();
  void rethrow() const;
  template <typename Ready>
  bool await(std::chrono::microseconds patience, const Ready& ready);
  [[noreturn]] void throw_destroyed() const;
  StepReport await_end(std::unique_lock<std::mutex>& lock, uint64_t step);

  const std::vector<TensorSpec> tensors_;
  Staging* const staging_;
  std::vector<std::vector<size_t>> tensors_of_;  // by bucket
  std::vector<size_t> bucket_of_;                // by tensor

  mutable std::mutex mutex_;
  std::condition_variable work_;   // for the exchange's thread
  std::condition_variable ended_;  // for callers
  std::vector<TensorView> views_;
  std::vector<bool> started_;
  std::vector<size_t> missing_;  // tensors not started yet, by bucket
  size_t started_count_ = 0;
  bool closed_ = false;
  bool unclaimed_ = false;  // the last step has ended, and finish has not returned it
  bool stopped_ = false;
  uint64_t step_ = 0;
  StepReport report_;  // of the last step that ended
  std::exception_ptr error_;
  uint64_t failures_ = 0;  // since the beginning; restart forgets the error, and not that it was
  std::exception_ptr last_failure_;  // its error
};

}  // namespace thinwire
