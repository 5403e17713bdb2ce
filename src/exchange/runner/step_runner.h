// StepRunner: the Runner of an exchange without hierarchy: runs the sections of a step over one
// channel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/faulty/faulty_ranks.h"
#include "exchange/layout/plan.h"
#include "exchange/methods/method.h"
#include "exchange/owner/statistics_round.h"
#include "exchange/runner/runner.h"
#include "exchange/runner/section_runner.h"
#include "exchange/runner/stream_maker.h"
#include "exchange/state/shared_state.h"
#include "exchange/step/stopwatch.h"
#include "exchange/step/tensor_table.h"
#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

class StepRunner final : public Runner {
 public:
  StepRunner(const Sections& sections, const ExchangeOptions& options,
             const std::vector<TensorSpec>& tensors, std::unique_ptr<Group> channel, Store& store);

  Group& channel() noexcept override { return *channel_; }
  const Plan& plan() const noexcept override { return plan_; }
  const std::vector<StreamSpec>& streams() const noexcept override { return specs_; }
  OnDevice on_device() const override;
  std::vector<OwnedRange> owned(size_t rank) const override;
  void compare_shared(Group& group) override;

  void set_momentum(std::span<const Momentum> of_tensors) override;
  void check_change(const Sections& /*any*/) const override {}
  void change(const Sections& sections) override;
  std::vector<bool> owners_owe() override;
  void set_weight(double weight) override;
  void abstain(Abstention what) override;
  void set_weighted(bool weighted) override;

  void begin(uint64_t step) override;
  bool may_begin() const noexcept override { return context_.attendance.known(); }
  bool takes_place() const noexcept { return enough_ranks_; }
  void open(size_t tensor, const TensorView& view) override { tensors_.open(tensor, view); }
  void begin_bucket(size_t bucket) override;  // nothing happens unless takes_place
  bool advance() override;
  bool idle() const noexcept override;
  std::string awaited() const override;
  bool awaits_owner() const noexcept override;
  bool outlives_ranks() const noexcept override { return leaves_out(); }
  bool stop_waiting() noexcept override;
  StepReport end() override;
  uint64_t word() const override { return word_; }
  std::vector<std::optional<LostRank>> debts() const override {
    return context_.attendance.debts();
  }
  StepReport conclude(uint64_t word) override;
  void settle(bool counts) override;

  // The numbers that its ranks have in a hierarchy: first + r x stride.
  void number_ranks(int first, int stride) noexcept {
    context_.first = first;
    context_.stride = stride;
  }
  const StepContext& context() const noexcept { return context_; }

  // The next three are the parts of end, for a hierarchy.

  // The worst fault that this rank found in the step, in this runner's numbers of ranks and
  // streams.
  uint64_t fault_word() const noexcept { return context_.faults.word(); }

  // Puts the means into the tensors, before it is known whether the step counts.
  void give_results();

  // Ends the step by the verdict of all ranks; the report names the stream at fault, if any.
  StepReport conclude(const Verdict& verdict, const std::string& stream_at_fault);

 private:
  // Where a bucket of the plan is: in a section, among its buckets.
  struct Place {
    size_t section = 0;
    size_t bucket = 0;
  };

  void arrange(const Sections& sections, Plan plan);
  void take_attendance();
  bool choose();
  bool leaves_out() const noexcept { return roster_ != nullptr; }
  bool may_leave_out(const Sections& sections) const;
  void choose_faulty_mode();
  Verdict combine_without_faulty();
  std::vector<int> unchosen() const;

  // The parts of conclude. end_parts commits or takes back what sections and streams did.
  void add_participants(StepReport& report) const;
  Fault fault_of(const Verdict& verdict, const std::string& stream_at_fault,
                 size_t participants) const;
  void end_parts(bool skipped);
  void add_counters(StepReport& report);
  void follow_schedules();

  const Method* waiting() const noexcept;

  ExchangeOptions options_;
  bool may_leave_out_ = false;  // ranks, as far as the sections are concerned
  const std::vector<TensorSpec> given_;
  Store& store_;
  std::unique_ptr<Group> channel_;
  TensorTable tensors_;
  StepContext context_;
  std::unique_ptr<FaultyRanks> faulty_;  // once the exchange goes on without faulty ranks
  Roster* roster_ = nullptr;             // while it does so; null: a fault skips the step
  Plan plan_;
  Streams streams_;
  std::vector<StreamSpec> specs_;  // theirs
  std::vector<std::unique_ptr<SectionRunner>> sections_;
  std::vector<Place> places_;  // by bucket
  size_t begun_ = 0;           // buckets, in this step

  const NamedCombine combine_;
  StreamMaker maker_;
  std::unique_ptr<StatisticsRound> round_;  // of all sections; null unless a VectorRule decides
  bool enough_ranks_ = true;                // take part in this step

  double weight_ = 1;
  std::optional<Abstention> abstains_;  // from the next step

  uint64_t word_ = 0;         // of the last step that ended
  bool has_verdict_ = false;  // the last step that began

  uint64_t sent_before_ = 0;
  uint64_t received_before_ = 0;
  Clock::time_point first_send_;
  Clock::time_point last_receive_;
};

}  // namespace thinwire
