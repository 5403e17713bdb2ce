// StepRunner: runs one step after another on the thread that owns the channel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/engine/section_runner.h"
#include "exchange/engine/sections.h"
#include "exchange/engine/shared_state.h"
#include "exchange/engine/tensor_table.h"
#include "exchange/layout/plan.h"
#include "exchange/methods/method.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// A step is begin, begin_bucket for every bucket in order with advance in between, then end once
// idle. Used by one thread at a time.
class StepRunner {
 public:
  // `plan` is that of the sections.
  StepRunner(const Sections& sections, Plan plan, const ExchangeOptions& options,
             const std::vector<TensorSpec>& tensors, std::unique_ptr<Group> channel, Store& store);

  Group& channel() noexcept { return *channel_; }

  // Of all that streams remember and all ranks hold alike.
  std::vector<SharedSum> shared_sums() const;

  // Of results that are shards.
  std::vector<OwnedRange> owned(size_t rank) const;

  // Between two steps: of every tensor.
  void set_momentum(std::span<const Momentum> of_tensors);

  // Between two steps: other sections of the same tensors, and their plan. Memories stay. Where a stream stays
  // too, and its codec differs in its options alone, its encoder goes on from its state.
  void change(const Sections& sections, Plan plan);

  // Of each section, whether its owners owe something.
  std::vector<bool> owners_owe() const;

  // Between two steps: what Exchange says of these.
  void set_weight(double weight);
  void abstain(Abstention what);
  void set_weighted(bool weighted);

  void begin(uint64_t step);

  // Whether it is known who takes part, before which no bucket begins; and whether anybody does.
  bool may_begin() const noexcept { return context_.attendance.known(); }
  bool has_participants() const noexcept { return context_.attendance.count() > 0; }

  // This step's memory of a tensor, before begin_bucket of the first bucket that needs it.
  void open(size_t tensor, const TensorView& view) { tensors_.open(tensor, view); }

  void begin_bucket(size_t bucket);  // nothing happens without participants

  // Moves every bucket that is on its way as far as it goes without waiting; whether any moved.
  bool advance();
  bool idle() const noexcept;

  // "receive of 128 bytes from rank 3": what the oldest bucket of a section waits for. REQUIRES: not idle.
  std::string awaited() const;
  bool awaits_owner() const noexcept;

  // All ranks agree whether the step counts; every memory follows. Waits for the other ranks.
  StepReport end();

 private:
  // Where a bucket of the plan is: in a section, among its buckets.
  struct Place {
    size_t section = 0;
    size_t bucket = 0;
  };

  void arrange(const Sections& sections, Plan plan);
  void settle_attendance();
  const Method* waiting() const noexcept;

  ExchangeOptions options_;
  Store& store_;
  std::unique_ptr<Group> channel_;
  TensorTable tensors_;
  StepContext context_;
  Streams streams_;
  std::vector<std::unique_ptr<SectionRunner>> sections_;
  std::vector<Place> places_;  // by bucket

  double weight_ = 1;
  std::optional<Abstention> abstains_;  // from the next step

  uint64_t sent_before_ = 0;
  uint64_t received_before_ = 0;
  Clock::time_point first_send_;
  Clock::time_point last_receive_;
};

}  // namespace thinwire
