// Intake: records started tensors, ready buckets, and the callers that wait for a step.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/intake.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"
#include "exchange/step/stopwatch.h"
#include "exchange/step/tensor_table.h"

namespace thinwire {

Intake::Intake(const Plan& plan, std::vector<TensorSpec> tensors, Staging* staging)
    : tensors_(std::move(tensors)),
      staging_(staging),
      bucket_of_(tensors_.size()),
      views_(tensors_.size()),
      started_(tensors_.size()) {
  follow(plan);
}

void Intake::follow(const Plan& plan) {
  tensors_of_ = first_tensors_of(plan);
  missing_.resize(tensors_of_.size());
  for (size_t bucket = 0; bucket < tensors_of_.size(); ++bucket)
    for (const size_t tensor : tensors_of_[bucket]) bucket_of_[tensor] = bucket;
  forget_starts();
}

Ticket Intake::start(size_t index, const TensorView& view) {
  THINWIRE_CHECK(index < tensors_.size(),
                 "exchange: there is no tensor number " + std::to_string(index));
  check_view(tensors_[index], view, staging_ != nullptr);
  const std::lock_guard lock(mutex_);
  rethrow();
  THINWIRE_CHECK(!started_[index], "exchange: tensor '" + tensors_[index].name +
                                       "' is started twice in step " + std::to_string(step_));
  THINWIRE_CHECK(!closed_, "exchange: tensor '" + tensors_[index].name +
                               "' is started while finish ends step " + std::to_string(step_));
  if (view.device != Device::kCpu)
    staging_->fetch(index, view);  // may throw: then it was not started
  views_[index] = view.device == Device::kCpu ? view : staging_->found_view(index);
  started_[index] = true;
  unclaimed_ = false;
  closed_ = ++started_count_ == tensors_.size();
  if (--missing_[bucket_of_[index]] == 0 || started_count_ == 1) work_.notify_all();
  return {.step = step_};
}

StepReport Intake::finish(const std::function<void()>& may_open) {
  std::unique_lock lock(mutex_);
  rethrow();
  if (std::exchange(unclaimed_, false)) {
    if (staging_ != nullptr) staging_->order_callers();
    return report_;
  }
  if (started_count_ == 0 && !closed_) may_open();
  closed_ = true;
  work_.notify_all();
  StepReport report = await_end(lock, step_);
  unclaimed_ = false;
  return report;
}

StepReport Intake::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  THINWIRE_CHECK(ticket.step <= step_,
                 "exchange: step " + std::to_string(ticket.step) + " has not begun");
  return await_end(lock, ticket.step);
}

StepReport Intake::await_end(std::unique_lock<std::mutex>& lock, uint64_t step) {
  const auto since = Clock::now();
  const uint64_t failures = failures_;
  ended_.wait(lock, [&] { return error_ != nullptr || failures_ != failures || step_ > step; });
  // The step that ends a run after too many skipped ones leaves zeros, too.
  if (staging_ != nullptr && step_ > step) staging_->order_callers();
  rethrow();
  if (failures_ != failures) std::rethrow_exception(last_failure_);  // restart was faster
  StepReport report = report_;
  report.wait_seconds = std::chrono::duration<double>(Clock::now() - since).count();
  return report;
}

void Intake::between_steps(const char* what, const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  rethrow();
  THINWIRE_CHECK(started_count_ == 0 && !closed_,
                 std::string("exchange: ") + what + " while a step is under way");
  work();
}

void Intake::set_step(uint64_t step) {
  between_steps("set_step", [&] {
    step_ = step;
    unclaimed_ = false;
  });
}

void Intake::restart(uint64_t step) {
  const std::lock_guard lock(mutex_);
  error_ = nullptr;
  stopped_ = unclaimed_ = false;
  step_ = step;
  if (staging_ != nullptr) staging_->forget();
  forget_starts();
}

bool Intake::has_failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Intake::throw_destroyed() const {
  throw Error(ErrorCode::kPeerLost,
              "exchange: destroyed in the middle of step " + std::to_string(step_));
}

bool Intake::await_step(uint64_t& step) {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return started_count_ > 0 || closed_ || stopped_; });
  step = step_;
  if (stopped_ && !closed_ && started_count_ > 0) throw_destroyed();
  return closed_ || !stopped_;
}

bool Intake::await_bucket(size_t bucket, std::chrono::microseconds patience) {
  return await(patience, [&] { return closed_ || missing_[bucket] == 0; });
}

bool Intake::await_closed(std::chrono::microseconds patience) {
  return await(patience, [&] { return closed_; });
}

template <typename Ready>
bool Intake::await(std::chrono::microseconds patience, const Ready& ready) {
  std::unique_lock lock(mutex_);
  const auto ready_or_stopped = [&] { return ready() || stopped_; };
  if (patience == kForever)
    work_.wait(lock, ready_or_stopped);
  else if (patience.count() > 0)
    work_.wait_for(lock, patience, ready_or_stopped);
  if (stopped_ && !closed_) throw_destroyed();
  return ready();
}

TensorView Intake::view(size_t tensor) {
  const std::lock_guard lock(mutex_);
  return views_[tensor];
}

bool Intake::arrived(size_t bucket) const {
  if (staging_ == nullptr) return true;
  const std::vector<size_t>& tensors = tensors_of_[bucket];
  return std::all_of(tensors.begin(), tensors.end(),
                     [this](size_t tensor) { return staging_->arrived(tensor); });
}

void Intake::end_step(StepReport report, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  report_ = std::move(report);
  error_ = std::move(error);
  ++step_;
  if (staging_ != nullptr) staging_->close_step();
  if (staging_ != nullptr && error_ != nullptr) staging_->order_last_callers();
  forget_starts();
  unclaimed_ = true;
  ended_.notify_all();
}

void Intake::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (staging_ != nullptr) staging_->order_after_failure();
  error_ = std::move(error);
  last_failure_ = error_;
  ++failures_;
  ended_.notify_all();
}

void Intake::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  work_.notify_all();
}

void Intake::forget_starts() {
  std::fill(views_.begin(), views_.end(), TensorView{});
  std::fill(started_.begin(), started_.end(), false);
  for (size_t bucket = 0; bucket < missing_.size(); ++bucket)
    missing_[bucket] = tensors_of_[bucket].size();
  started_count_ = 0;
  closed_ = false;
}

void Intake::rethrow() const {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

}  // namespace thinwire
