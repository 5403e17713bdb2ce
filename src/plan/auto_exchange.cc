// AutoExchange: an exchange that is watched, and changed where a chooser says so.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <mutex>
#include <utility>

#include "exchange/engine/terms.h"
#include "plan/auto_chooser.h"
#include "plan/auto_state.h"
#include "thinwire/agreement.h"
#include "thinwire/auto_codec.h"

namespace thinwire {
namespace {

class AutoExchange final : public Exchange {
 public:
  AutoExchange(Group& group, Store& store, const std::vector<TensorSpec>& tensors,
               const ExchangeOptions& options, AutoSources sources)
      : asked_(options),
        chooser_(group, options, tensors, std::move(sources)),
        state_(store.open<AutoState>(kAutoStateKey, [] { return std::make_unique<AutoState>(); })),
        next_step_(options.first_step) {
    const bool resumed = !state_.decisions.empty();
    const AutoDecision first =
        chooser_.begin(next_step_, resumed ? &state_.decisions.back() : nullptr);
    if (!resumed) state_.decisions = {first};
    ExchangeOptions own = decided_options(asked_, first);
    if (resumed) keep_memories(state_.memories, own);
    inner_ = make_exchange(group, store, tensors, own);
    state_.memories = memories_of(inner_->options());
  }

  Ticket start(size_t index, TensorView tensor) override {
    if (!under_way_) begin();
    watch([&](double clock) { chooser_.watch.started(index, clock); });
    ticket_ = inner_->start(index, tensor);
    return ticket_;
  }
  StepReport finish() override {
    if (!under_way_ && !ended_) begin();
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
    momenta_.assign(of_tensors.begin(), of_tensors.end());
  }
  void change(const ExchangeOptions& options) override {
    inner_->change(options);
    decides_ = false;
  }
  const ExchangeOptions& options() const noexcept override {
    return decides_ ? asked_ : inner_->options();
  }
  void set_weight(double weight) override { inner_->set_weight(weight); }
  void abstain(Abstention what) override { inner_->abstain(what); }
  void set_weighted(bool weighted) override {
    inner_->set_weighted(weighted);
    asked_.weighted = weighted;
  }
  void settle(bool counts) override { inner_->settle(counts); }
  void hand_over(bool leaves) override { inner_->hand_over(leaves); }
  Regrouped regroup(Group& /*group*/, uint32_t /*epoch*/) override {
    throw Error(ErrorCode::kUnsupported,
                "regroup: codec 'auto' goes on with the ranks that it began with; change to the "
                "codec of its last decision, in an exchange of its own");
  }
  const std::vector<AutoDecision>& decisions() const noexcept override { return state_.decisions; }

 private:
  // Before the first tensor of a step.
  void begin() {
    under_way_ = true;
    ended_ = false;
    if (!decides_) return;
    const std::optional<AutoDecision> next = chooser_.next(next_step_, state_.decisions.back());
    if (next) follow(*next);
  }

  void follow(const AutoDecision& next) {
    ExchangeOptions own = decided_options(asked_, next);
    const ExchangeOptions& now = inner_->options();
    own.first_step = now.first_step;
    own.steps_per_epoch = now.steps_per_epoch;
    inner_->change(own);
    if (!momenta_.empty()) inner_->set_momentum(momenta_);
    state_.decisions.push_back(next);
    state_.memories = memories_of(inner_->options());
  }

  // Whoever hears of the end first notes it: threads may wait for the same step.
  StepReport end(StepReport report) {
    const std::scoped_lock lock(mutex_);
    if (under_way_ && report.step == next_step_) {
      under_way_ = false;
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
  std::vector<Momentum> momenta_;
  uint64_t next_step_;
  bool decides_ = true;  // until the caller changes the codec
  Ticket ticket_;

  std::mutex mutex_;  // end may be called from another thread than start
  bool under_way_ = false;
  bool ended_ = false;                // by wait, and finish was not called since
  uint64_t sent_ = 0, received_ = 0;  // in the step, beside the exchange
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
