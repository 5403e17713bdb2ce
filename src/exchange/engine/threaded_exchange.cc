// The thread of an exchange, and what callers ask of it.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/threaded_exchange.h"

#include <algorithm>
#include <exception>

#include "comm/wait_policy.h"
#include "core/check.h"
#include "core/named_thread.h"
#include "core/number_text.h"
#include "exchange/terms/codec_change.h"
#include "feedback/momentum_rules.h"
#include "thinwire/agreement.h"

namespace thinwire {

void on_all(Group& group, const char* what, const std::function<void()>& work) {
  together(group, [&] {
    try {
      work();
    } catch (const Error& error) {
      throw Error(error.code(), std::string("exchange: could not be ") + what + " on rank " +
                                    std::to_string(group.rank()) + ": " + error.what());
    }
  });
}

ThreadedExchange::ThreadedExchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                   ExchangeOptions options, Sections sections,
                                   std::unique_ptr<Runner> runner)
    : group_(&group),
      store_(store),
      tensors_(std::move(tensors)),
      options_(std::move(options)),
      sections_(std::move(sections)),
      runner_(std::move(runner)),
      staging_(options_.device ? std::make_unique<Staging>(options_.device, tensors_) : nullptr),
      intake_(runner_->plan(), tensors_, staging_.get()),
      generation_(options_.generation),
      rank_(group.rank()),
      size_(group.size()),
      memories_scaled_for_ranks_(static_cast<size_t>(size_)),
      last_told_debts_(memories_scaled_for_ranks_),
      store_ids_(memories_scaled_for_ranks_),
      handed_over_(memories_scaled_for_ranks_) {
  for (int rank = 0; rank < size_; ++rank)
    last_told_debts_[static_cast<size_t>(rank)] = {
        .rank = rank, .step = options_.first_step, .generation = generation_};
  follow();
  start_thread();
}

ThreadedExchange::~ThreadedExchange() {
  if (thread_.joinable()) stop_thread();
}

void ThreadedExchange::start_thread() {
  thread_ = named_thread("tw-exchange", [this] { run(); });
}

void ThreadedExchange::stop_thread() {
  intake_.stop();
  thread_.join();
}

void ThreadedExchange::require_settled() const {
  THINWIRE_CHECK(last_step_ != LastStep::kHeld,
                 "exchange: the last step is held; settle says whether it counts, before the next");
}

Ticket ThreadedExchange::start(size_t index, TensorView tensor) {
  require_settled();
  return intake_.start(index, tensor);
}

StepReport ThreadedExchange::finish() {
  return intake_.finish([this] { require_settled(); });
}

const std::vector<OwnedRange>& ThreadedExchange::owned(int rank) const {
  THINWIRE_CHECK(!owned_.empty(), "exchange: owned needs ExchangeOptions::results = kShard");
  THINWIRE_CHECK(rank >= 0 && static_cast<size_t>(rank) < owned_.size(),
                 "exchange: there is no rank " + std::to_string(rank));
  return owned_[static_cast<size_t>(rank)];
}

void ThreadedExchange::set_step(uint64_t step) {
  require_settled();
  intake_.set_step(step);
}

namespace {

// A scheduler may lead out of the range of the memories' options, where a velocity has no end.
void check_momenta(std::span<const Momentum> of_tensors, const std::vector<TensorSpec>& tensors) {
  const auto check = [](const char* what, const TensorSpec& tensor, double value, double most) {
    if (value >= 0 && value <= most) return;  // and no NaN
    throw Error(ErrorCode::kBadOption, "set_momentum: the " + std::string(what) + " of '" +
                                           tensor.name + "' is " + shortest(value) +
                                           "; it is a number from 0 to " + shortest(most));
  };
  for (size_t i = 0; i < std::min(of_tensors.size(), tensors.size()); ++i) {
    check("momentum", tensors[i], of_tensors[i].momentum, kLargestMomentum);
    check("dampening", tensors[i], of_tensors[i].dampening, 1);
  }
}

}  // namespace

void ThreadedExchange::set_momentum(std::span<const Momentum> of_tensors) {
  require_settled();
  check_momenta(of_tensors, tensors_);
  intake_.between_steps("set_momentum", [&] {
    runner_->set_momentum(of_tensors);
    momenta_.assign(of_tensors.begin(), of_tensors.end());
  });
}

void ThreadedExchange::set_weight(double weight) {
  intake_.between_steps("set_weight", [&] { runner_->set_weight(weight); });
}

void ThreadedExchange::abstain(Abstention what) {
  intake_.between_steps("abstain", [&] { runner_->abstain(what); });
}

void ThreadedExchange::set_weighted(bool weighted) {
  require_settled();
  intake_.between_steps("set_weighted", [&] {
    if (weighted == options_.weighted) return;  // PyTorch's links say it before every step
    ExchangeOptions asked = options_;           // as changes left them
    asked.weighted = weighted;
    check_exchange(asked).or_throw();
    runner_->set_weighted(weighted);
    options_.weighted = weighted;
  });
}

// Once `begun` a rank alone cannot go back.
void ThreadedExchange::change(const ExchangeOptions& asked) {
  require_settled();
  bool begun = false;
  try {
    intake_.between_steps("change", [&] { change_now(asked, begun); });
  } catch (...) {
    if (begun) intake_.fail(std::current_exception());
    throw;
  }
}

// First all ranks find that they want the same and come to the same mistakes, if any; then all
// change.
void ThreadedExchange::change_now(const ExchangeOptions& asked, bool& begun) {
  const uint64_t step = intake_.next_step();
  Result<ExchangeOptions> next =
      changed_options(options_, sections_, runner_->owners_owe(), asked, tensors_, step);
  require_agreement(*group_, "change", change_text(asked, next, step));
  Sections sections = resolve_sections(next.value(), tensors_, step).value();
  runner_->check_change(sections);
  begun = true;
  on_all(*group_, "changed", [&] { runner_->change(sections); });
  intake_.follow(runner_->plan());
  follow();
  sections_ = std::move(sections);
  options_ = next.value();
}

// Streams may be new, with the momentum of their options, and in a device's memory or no longer
// there.
void ThreadedExchange::tell_streams() {
  if (staging_ != nullptr) {
    auto [tensors, queue] = runner_->on_device();
    staging_->leave_on_device(std::move(tensors), queue);
  }
  if (!momenta_.empty()) runner_->set_momentum(momenta_);
}

void ThreadedExchange::follow() {
  bucket_count_ = runner_->plan().buckets.size();
  tell_streams();
  owned_.clear();
  const bool shards = options_.results == Results::kShard;
  for (int rank = 0; shards && rank < runner_->channel().size(); ++rank)
    owned_.push_back(runner_->owned(static_cast<size_t>(rank)));
}

void ThreadedExchange::run() noexcept {
  try {
    uint64_t step = 0;
    std::exception_ptr over;
    while (over == nullptr && intake_.await_step(step)) {
      require_settled();
      last_step_ = LastStep::kUnderWay;
      run_buckets(step);
      last_step_ = LastStep::kVoting;
      StepReport report = runner_->end();
      if (staging_ != nullptr) staging_->give_back(report);
      over = judge(report);
      verdict_word_ = runner_->word();
      last_step_ = options_.hold && !report.skipped ? LastStep::kHeld : LastStep::kNothing;
      if (!report.skipped) {
        if (!options_.hold)
          waits_for_first_step_ = false;  // else settle says whether the step counts
        losses_confirmed_ = true;
      }
      intake_.end_step(std::move(report), over);
    }
  } catch (const std::exception& error) {
    give_up(error.what());
  } catch (...) {
    give_up("unknown error");
  }
}

// Called in a handler. Nothing else makes the ranks that wait for this one stop before the
// deadline.
void ThreadedExchange::give_up(const std::string& why) {
  intake_.fail(std::current_exception());  // the caller first: telling the others may take a while
  if (!runner_->outlives_ranks()) runner_->channel().abort(why);
}

namespace {

// Counts looks in a row at which nothing had moved, and says how long to sleep after each.
class Naps {
 public:
  std::chrono::microseconds after_look() noexcept {
    if (looks_ == 0) quiet_since_ = Clock::now();
    return nap_after(looks_++);
  }
  void moved() noexcept { looks_ = 0; }
  void restart_clock() noexcept { quiet_since_ = Clock::now(); }
  Clock::time_point quiet_since() const noexcept { return quiet_since_; }

 private:
  int looks_ = 0;
  Clock::time_point quiet_since_ = Clock::now();
};

}  // namespace

// While a bucket is on the wire the next one that is ready is compressed, and those that arrived
// are decoded.
void ThreadedExchange::run_buckets(uint64_t step) {
  runner_->begin(step);
  Naps messages, arrivals;
  for (size_t next = 0; next < bucket_count_ || !runner_->idle();) {
    bool moved = runner_->advance();
    const auto nap = moved ? std::chrono::microseconds(0) : messages.after_look();
    const bool may_begin = runner_->may_begin();
    // A deadline counts only while this rank has handed over everything and waits for others.
    bool caller_is_busy = next < bucket_count_;
    if (caller_is_busy && !may_begin && intake_.await_closed(nap)) caller_is_busy = false;
    if (caller_is_busy && may_begin) {
      switch (try_begin_bucket(next, runner_->idle() ? Intake::kForever : nap)) {
        case BucketStart::kNotStarted:
          break;
        case BucketStart::kOnItsWay: {
          const auto arrival_nap = arrivals.after_look();
          check_arrival(next, arrivals.quiet_since());
          std::this_thread::sleep_for(arrival_nap);
          break;
        }
        case BucketStart::kBegun:
          arrivals.moved();
          ++next;
          moved = true;
          break;
      }
    } else if (!moved && !caller_is_busy) {
      check_deadline(messages.quiet_since());
      if (nap.count() > 0) std::this_thread::sleep_for(nap);
    }
    if (moved) messages.moved();
    if (moved || caller_is_busy) messages.restart_clock();
  }
}

ThreadedExchange::BucketStart ThreadedExchange::try_begin_bucket(
    size_t bucket, std::chrono::microseconds patience) {
  if (!intake_.await_bucket(bucket, patience)) return BucketStart::kNotStarted;
  if (!intake_.arrived(bucket)) return BucketStart::kOnItsWay;
  for (const size_t tensor : intake_.tensors_of(bucket))
    runner_->open(tensor, intake_.view(tensor));
  runner_->begin_bucket(bucket);
  return BucketStart::kBegun;
}

void ThreadedExchange::check_arrival(size_t bucket, Clock::time_point since) const {
  const auto deadline = runner_->channel().deadline();
  if (Clock::now() - since <= deadline) return;
  throw Error(ErrorCode::kTimeout, "exchange: tensor '" +
                                       tensors_[intake_.tensors_of(bucket).front()].name +
                                       "' has not arrived from " + options_.device->name() +
                                       " within " + std::to_string(deadline.count()) + " ms");
}

void ThreadedExchange::check_deadline(Clock::time_point quiet_since) {
  const auto deadline = runner_->channel().deadline();
  // Who waits for a rank itself speaks first, and names it.
  const auto patience = runner_->awaits_owner() ? deadline + deadline / 4 : deadline;
  if (Clock::now() - quiet_since <= patience || runner_->stop_waiting()) return;
  throw Error(ErrorCode::kTimeout, "exchange: nothing moved for " +
                                       std::to_string(deadline.count()) +
                                       " ms: " + runner_->awaited());
}

// The error that ends the run after too many skipped steps; all ranks come to the same.
std::exception_ptr ThreadedExchange::judge(const StepReport& report) {
  if (report.skipped && report.fault.code == ErrorCode::kOk) return nullptr;  // ranks abstained
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (options_.max_skipped <= 0 || skipped_in_a_row_ < options_.max_skipped) return nullptr;
  return std::make_exception_ptr(Error(
      report.fault.code, "exchange: " + std::to_string(skipped_in_a_row_) +
                             " steps in a row were skipped; the last: " + describe(report.fault) +
                             " in step " + std::to_string(report.step)));
}

}  // namespace thinwire
