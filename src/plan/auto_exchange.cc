// AutoExchange: an exchange that is watched, and changed where a chooser says so.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "exchange/terms/agreement_text.h"
#include "exchange/terms/terms.h"
#include "plan/auto_chooser.h"
#include "plan/auto_state.h"
#include "plan/outside_step.h"
#include "thinwire/agreement.h"
#include "thinwire/auto_codec.h"
#include "thinwire/feedback.h"

namespace thinwire {
namespace {

// Whether nothing that the caller asked for, on this rank, needs thinwire's own exchange of fp32.
bool allows_bypass(const ExchangeOptions& asked) {
  return asked.rules.empty() && asked.results == Results::kFull && asked.max_skipped != 1 &&
         !asked.debts && !asked.hold && !asked.norms && !asked.observe && asked.device == nullptr;
}

// Whether memories add nothing to what fp32 sends, once a step with fp32 has counted: a plain
// residual is zero then.
bool memories_are_idle(const ExchangeOptions& options, uint64_t step) {
  const std::string memory = resolve_terms(options, step).value().feedback;
  if (memory == "none") return true;
  const NamedFeedback named = find_feedback(memory).value();
  return named.entry->name == "residual" && named.options.number("gamma") == 1;
}

class AutoExchange final : public Exchange, private Bypass {
 public:
  AutoExchange(Group& group, Store& store, const std::vector<TensorSpec>& tensors,
               const ExchangeOptions& options, AutoSources sources)
      : asked_(options),
        chooser_(group, options, tensors, std::move(sources)),
        state_(store.open<AutoState>(kAutoStateKey, [] { return std::make_unique<AutoState>(); })),
        tensors_(tensors),
        outside_(tensors.size()),
        allows_bypass_(chooser_.link().channel().max(allows_bypass(options) ? 0 : 1) == 0),
        next_step_(options.first_step) {
    const bool resumed = !state_.decisions.empty();
    const AutoDecision first = chooser_.begin(next_step_, state_.decisions);
    if (!resumed) state_.decisions = {first};
    ExchangeOptions own = decided_options(asked_, state_.decisions.back());
    if (resumed) keep_memories(state_.memories, own);
    inner_ = make_exchange(group, store, tensors, own);
    state_.memories = memories_of(inner_->options());
    // By a change, which keeps what memories owe.
    if (!same_codecs(first, state_.decisions.back())) follow(first);
  }

  Ticket start(size_t index, TensorView tensor) override {
    THINWIRE_CHECK(outside_.empty(), "auto: start in a step that bypasses the exchange");
    THINWIRE_CHECK(index < tensors_.size(), "auto: tensor " + std::to_string(index) + " of " +
                                                std::to_string(tensors_.size()));
    if (!under_way_) begin();
    begin_inside();
    watch([&](double clock) { chooser_.watch.started(index, clock); });
    return inner_->start(index, tensor);
  }
  StepReport finish() override {
    THINWIRE_CHECK(outside_.empty(), "auto: finish in a step that bypasses the exchange");
    if (!under_way_ && !ended_) begin();
    if (!ended_) begin_inside();
    StepReport report = end(inner_->finish());
    const std::scoped_lock lock(mutex_);
    ended_ = false;  // another call without a start is a step of its own
    return report;
  }
  StepReport wait(Ticket ticket) override { return end(inner_->wait(ticket)); }

  const std::vector<StreamSpec>& streams() const noexcept override { return inner_->streams(); }
  const std::vector<OwnedRange>& owned(int rank) const override { return inner_->owned(rank); }
  void set_step(uint64_t step) override {
    inner_->set_step(step);
    next_step_ = step;
  }
  void set_momentum(std::span<const Momentum> of_tensors) override {
    inner_->set_momentum(of_tensors);
  }
  void change(const ExchangeOptions& options) override {
    inner_->change(options);
    decides_ = false;
  }
  const ExchangeOptions& options() const noexcept override {
    return decides_ ? asked_ : inner_->options();
  }
  void set_weight(double weight) override { inner_->set_weight(weight); }
  void abstain(Abstention what) override {
    THINWIRE_CHECK(outside_.empty() && !is_inside_, "auto: abstain during a step");
    if (what == Abstention::kSkipsStep)
      asks_to_skip_ = true;
    else
      inner_->abstain(what);
  }
  void set_weighted(bool weighted) override {
    inner_->set_weighted(weighted);
    asked_.weighted = weighted;
  }
  void settle(bool counts) override { inner_->settle(counts); }
  void hand_over(bool leaves) override { inner_->hand_over(leaves); }
  Regrouped regroup(Group& /*group*/, uint32_t /*generation*/) override {
    throw Error(ErrorCode::kUnsupported,
                "regroup: codec 'auto' goes on with the ranks that it began with; change to the "
                "codec of its last decision, in an exchange of its own");
  }
  const std::vector<AutoDecision>& decisions() const noexcept override { return state_.decisions; }
  Bypass* bypass() noexcept override { return this; }

  bool may_bypass() override {
    if (!under_way_) begin();
    const AutoDecision& now = state_.decisions.back();
    return decides_ && counted_ && allows_bypass_ && !asked_.weighted && !is_inside_ &&
           chooser_.link().size() > 1 && now.codec == "fp32" && now.others.empty() &&
           memories_are_idle(inner_->options(), next_step_);
  }
  void start_outside(size_t index, std::span<float> values) override {
    THINWIRE_CHECK(!outside_.empty() || may_bypass(),
                   "auto: this step may not bypass the exchange");
    THINWIRE_CHECK(index < tensors_.size() && values.size() == tensors_[index].count(),
                   "auto: there is no tensor " + std::to_string(index) + " of " +
                       std::to_string(values.size()) + " values");
    watch([&](double clock) { chooser_.watch.started(index, clock); });
    if (asks_to_skip_) std::fill(values.begin(), values.end(), 0.0f);  // whatever they hold
    outside_.add(index, values);
  }
  void abandon_outside(std::string_view why) noexcept override {
    chooser_.link().channel().abort(why);
  }
  StepReport finish_outside() override {
    StepReport report;
    try {
      report = outside_.finish(chooser_.link().channel(), inner_->streams(), tensors_, next_step_,
                               asks_to_skip_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCorrupt) abandon_outside(error.what());
      throw;
    }
    inner_->set_step(report.step + 1);
    report = end(std::move(report));
    const std::scoped_lock lock(mutex_);
    ended_ = false;  // finish has no report of it
    return report;
  }

 private:
  // Before the first tensor of a step.
  void begin() {
    under_way_ = true;
    ended_ = false;
    if (!decides_) return;
    const std::optional<AutoDecision> next = chooser_.next(next_step_, state_.decisions.back());
    if (next) follow(*next);
  }

  void begin_inside() {
    if (!is_inside_ && asks_to_skip_) inner_->abstain(Abstention::kSkipsStep);
    is_inside_ = true;
  }

  void follow(const AutoDecision& next) {
    ExchangeOptions own = decided_options(asked_, next);
    const ExchangeOptions& now = inner_->options();
    own.first_step = now.first_step;
    own.steps_per_epoch = now.steps_per_epoch;
    inner_->change(own);
    counted_ = false;
    // set_step may have led back, to what an earlier decision still says.
    std::erase_if(state_.decisions, [&](const AutoDecision& one) { return one.step >= next.step; });
    if (state_.decisions.empty() || !same_codecs(state_.decisions.back(), next))
      state_.decisions.push_back(next);
    state_.memories = memories_of(inner_->options());
  }

  // Whoever hears of the end first notes it: threads may wait for the same step.
  StepReport end(StepReport report) {
    const std::scoped_lock lock(mutex_);
    if (under_way_ && report.step == next_step_) {
      // A step outside needs one inside before it in which all ranks take part: that sends what
      // memories owe after a change. It also needs one after a fault: the exchange itself names the
      // rank.
      const bool faulty = report.skipped && report.fault.code != ErrorCode::kOk;
      const bool whole =
          !report.skipped && report.participants == static_cast<uint64_t>(chooser_.link().size());
      counted_ = !faulty && (counted_ || whole);
      under_way_ = is_inside_ = asks_to_skip_ = false;
      ended_ = true;
      next_step_ = report.step + 1;
      chooser_.watch.ended(chooser_.clock());
      sent_ = chooser_.link().take_sent();
      received_ = chooser_.link().take_received();
    }
    report.sent_bytes += sent_;
    report.between_bytes += sent_;
    report.received_bytes += received_;
    return report;
  }

  template <typename Note>
  void watch(const Note& note) {
    const std::scoped_lock lock(mutex_);
    note(chooser_.clock());
  }

  ExchangeOptions asked_;
  AutoChooser chooser_;
  AutoState& state_;  // in the store
  std::unique_ptr<Exchange> inner_;
  const std::vector<TensorSpec> tensors_;
  OutsideStep outside_;       // under way, if it is not empty
  const bool allows_bypass_;  // on all ranks
  bool decides_ = true;       // until the caller changes the codec

  // A thread that waits for a step may end it while another begins the next one.
  std::mutex mutex_;
  std::atomic<uint64_t> next_step_;
  std::atomic<bool> under_way_ = false;
  std::atomic<bool> is_inside_ = false;     // that step: a tensor of it was given to the exchange
  std::atomic<bool> asks_to_skip_ = false;  // this rank, for the next step
  std::atomic<bool> counted_ = false;  // a step of the exchange itself, since its codecs changed
  std::atomic<bool> ended_ = false;    // by wait, and finish was not called since
  uint64_t sent_ = 0, received_ = 0;   // in the step, beside the exchange
};

}  // namespace

std::unique_ptr<Exchange> make_auto_exchange(Group& group, Store& store,
                                             std::vector<TensorSpec> tensors,
                                             const ExchangeOptions& options, AutoSources sources) {
  if (!is_auto(options.codec)) return make_exchange(group, store, std::move(tensors), options);
  require_agreement(group, "exchange", agreement_text(options, tensors));
  check_exchange(options).or_throw();
  return std::make_unique<AutoExchange>(group, store, tensors, options, std::move(sources));
}

}  // namespace thinwire
