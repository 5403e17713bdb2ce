// Runner: the interface by which the exchange's thread runs a step; StepRunner, LevelsRunner and
// ColumnRunner implement it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/terms/sections.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// A step is begin, begin_bucket for every bucket in order with advance in between, then end once
// the runner is idle. Functions with the name of a function of Exchange throw its errors. One
// thread at a time uses a runner.
class Runner {
 public:
  virtual ~Runner() = default;

  // Returns the group of all ranks of the exchange. The runner owns it.
  virtual Group& channel() noexcept = 0;

  // Returns the buckets of the tensors that callers hand over.
  virtual const Plan& plan() const noexcept = 0;

  // Says which tensors are compressed in a device's memory, and in which queue that work is.
  struct OnDevice {
    std::vector<bool> tensors = {};  // by tensor; empty: none
    DeviceQueue queue = nullptr;
  };

  // Returns no tensors unless a runner overrides it.
  virtual OnDevice on_device() const { return {}; }

  // Returns the streams in the order of StepReport::streams.
  virtual const std::vector<StreamSpec>& streams() const noexcept = 0;

  // Returns the ranges of tensors whose results a rank has, where results are shards.
  virtual std::vector<OwnedRange> owned(size_t rank) const = 0;

  // Throws AgreedError(kMismatch) unless the state that streams share with other ranks is the same
  // there. All ranks of `group` call it.
  virtual void compare_shared(Group& group) = 0;

  // The functions from here to begin are called between two steps.

  // Does what Exchange::set_momentum says.
  virtual void set_momentum(std::span<const Momentum> of_tensors) = 0;

  // Throws, on all ranks alike, if change(sections) is not possible.
  virtual void check_change(const Sections& sections) const = 0;

  // Goes on with other sections of the same tensors. Memories stay. If a stream stays too, and its
  // codec differs in its options alone, its encoder goes on from its state.
  virtual void change(const Sections& sections) = 0;

  // Returns, by section, whether an owner may still hold values that the mean lacked. Collective:
  // all ranks get the same answer.
  virtual std::vector<bool> owners_owe() = 0;

  // Do what the functions of Exchange with the same names say.
  virtual void set_weight(double weight) = 0;
  virtual void abstain(Abstention what) = 0;
  virtual void set_weighted(bool weighted) = 0;

  // Begins the step with this number.
  virtual void begin(uint64_t step) = 0;

  // Returns whether this rank knows who takes part in the step. No bucket may begin before.
  virtual bool may_begin() const noexcept = 0;

  // Gives the runner this step's memory of a tensor. The caller does so before begin_bucket of the
  // first bucket that needs it.
  virtual void open(size_t tensor, const TensorView& view) = 0;

  // Begins the exchange of a bucket. REQUIRES: may_begin, and the bucket's tensors were opened.
  virtual void begin_bucket(size_t bucket) = 0;

  // Moves every bucket that is on its way as far as it goes without waiting. Returns whether any
  // moved.
  virtual bool advance() = 0;

  // Returns whether no bucket that has begun is on its way any more.
  virtual bool idle() const noexcept = 0;

  // Returns what the oldest bucket of a section waits for, such as "receive of 128 bytes from rank
  // 3". REQUIRES: the runner is not idle.
  virtual std::string awaited() const = 0;

  // Returns whether the awaited message is an owner's result. That owner may wait for a third rank,
  // and then knows better which rank is lost. REQUIRES: the runner is not idle.
  virtual bool awaits_owner() const noexcept = 0;

  // Returns whether the exchange goes on although other ranks are lost, so that no rank needs to
  // stop the others when it fails.
  virtual bool outlives_ranks() const noexcept { return false; }

  // Returns whether the step goes on without the ranks that it waits for. It is called when the
  // deadline has passed.
  virtual bool stop_waiting() noexcept { return false; }

  // Ends the step: all ranks agree whether it counts, and every memory follows. It waits for the
  // other ranks.
  virtual StepReport end() = 0;

  // The functions from here on are for exchanges whose ranks change, which have one level and one
  // column.

  // Returns the verdict word (verdict.h) of the last step that ended here.
  virtual uint64_t word() const { return 0; }

  // Returns, by rank, what the rank last told that it owes; nothing where it has told nothing.
  virtual std::vector<std::optional<LostRank>> debts() const { return {}; }

  // Ends a step that failed in end(). `word` is the verdict word of a rank on which the step ended.
  virtual StepReport conclude(uint64_t word);

  // Ends a held step, or, with counts = false, undoes a step that failed at any point.
  virtual void settle(bool counts);
};

// Groups for one thread. `all` has all ranks. In a hierarchy, `inside` has the ranks of this rank's
// group, and `between` those at this rank's place of all groups. With columns, `between` has the
// ranks of this rank's column. The others are null.
struct Channels {
  std::unique_ptr<Group> all, inside, between;
};

}  // namespace thinwire
