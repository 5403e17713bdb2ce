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

#include "exchange/engine/sections.h"
#include "exchange/layout/plan.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// A step is begin, begin_bucket for every bucket in order with advance in between, then end once
// idle. Functions with the name of a function of Exchange throw its errors. Used by one thread at a
// time.
class Runner {
 public:
  virtual ~Runner() = default;

  // Of all ranks.
  virtual Group& channel() noexcept = 0;

  // The buckets of the tensors that callers hand over.
  virtual const Plan& plan() const noexcept = 0;

  // Tensors that are compressed in a device's memory, and the queue of that work; none unless said otherwise.
  struct OnDevice {
    std::vector<bool> tensors = {};
    DeviceQueue queue = nullptr;
  };
  virtual OnDevice on_device() const { return {}; }

  // In the order of StepReport::streams.
  virtual const std::vector<StreamSpec>& streams() const noexcept = 0;

  // Of results that are shards.
  virtual std::vector<OwnedRange> owned(size_t rank) const = 0;

  // Throws AgreedError(kMismatch) unless the state that streams share with other ranks is the same
  // there. All ranks of `group` call it.
  virtual void compare_shared(Group& group) = 0;

  // The functions from here to begin are called between two steps.
  virtual void set_momentum(std::span<const Momentum> of_tensors) = 0;

  // Goes on with other sections of the same tensors. Memories stay. If a stream stays too, and its
  // codec differs in its options alone, its encoder goes on from its state. check_change throws, on
  // all ranks alike, if the change is not possible.
  virtual void check_change(const Sections& sections) const = 0;
  virtual void change(const Sections& sections) = 0;

  // Of each section, whether its owners owe something; the same on all ranks, all of which call it.
  virtual std::vector<bool> owners_owe() = 0;

  virtual void set_weight(double weight) = 0;
  virtual void abstain(Abstention what) = 0;
  virtual void set_weighted(bool weighted) = 0;

  virtual void begin(uint64_t step) = 0;

  // Whether it is known who takes part, before which no bucket begins.
  virtual bool may_begin() const noexcept = 0;

  // This step's memory of a tensor, before begin_bucket of the first bucket that needs it.
  virtual void open(size_t tensor, const TensorView& view) = 0;

  virtual void begin_bucket(size_t bucket) = 0;

  // Moves every bucket that is on its way as far as it goes without waiting; whether any moved.
  virtual bool advance() = 0;
  virtual bool idle() const noexcept = 0;

  // "receive of 128 bytes from rank 3": what the oldest bucket of a section waits for. If it awaits
  // an owner, that one waits for another rank, and knows better which. REQUIRES: not idle.
  virtual std::string awaited() const = 0;
  virtual bool awaits_owner() const noexcept = 0;

  // Whether it goes on although other ranks are lost, so that no rank needs to stop the others when it fails.
  virtual bool outlives_ranks() const noexcept { return false; }

  // The deadline has passed: whether it goes on without the ranks that it waits for.
  virtual bool stop_waiting() noexcept { return false; }

  // All ranks agree whether the step counts; every memory follows. Waits for the other ranks.
  virtual StepReport end() = 0;

  // For exchanges whose ranks change; of one level and one column. `word` is what ranks agreed on at the end of the
  // last step that ended here. A step that failed in `end` is ended by conclude, by the word of a rank on which it
  // ended. settle ends a step that is held, or takes one back that failed anywhere.
  virtual uint64_t word() const { return 0; }
  virtual std::vector<std::optional<LostRank>> debts() const { return {}; }  // as ranks last told
  virtual StepReport conclude(uint64_t word);
  virtual void settle(bool counts);
};

// Groups for one thread: of all ranks; in a hierarchy also of the ranks of this rank's group, and
// of those at this rank's place of all groups.
struct Channels {
  std::unique_ptr<Group> all, inside, between;
};

// All ranks call it. REQUIRES: check_groups and check_grid accept the options.
Channels split_levels(Group& group, const ExchangeOptions& options);

// The one that options.inside asks for. Ranks need not wait for each other. Throws Error(kMismatch)
// if the store has memories of these tensors that belong to groups of another size.
std::unique_ptr<Runner> make_runner(const Sections& sections, const ExchangeOptions& options,
                                    const std::vector<TensorSpec>& tensors, Channels channels,
                                    Store& store);

}  // namespace thinwire
