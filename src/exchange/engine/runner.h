// Runner: what the thread of an exchange does in a step, whatever the levels of its ranks are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
// idle. Used by one thread at a time. Errors of set_momentum and what follows it are those of Exchange.
class Runner {
 public:
  virtual ~Runner() = default;

  // Of all ranks.
  virtual Group& channel() noexcept = 0;

  // The buckets of the tensors that callers hand over.
  virtual const Plan& plan() const noexcept = 0;

  // In the order of StepReport::streams.
  virtual const std::vector<StreamSpec>& streams() const noexcept = 0;

  // Of results that are shards.
  virtual std::vector<OwnedRange> owned(size_t rank) const = 0;

  // Throws AgreedError(kMismatch) unless what streams remember alike is alike. All ranks of `group` call it.
  virtual void compare_shared(Group& group) = 0;

  // The rest until begin: between two steps.
  virtual void set_momentum(std::span<const Momentum> of_tensors) = 0;

  // Other sections of the same tensors. Memories stay. Where a stream stays too, and its codec differs in its
  // options alone, its encoder goes on from its state. Sections that cannot be are refused by check_change, on
  // all ranks alike.
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

  // "receive of 128 bytes from rank 3": what the oldest bucket of a section waits for. REQUIRES: not idle.
  virtual std::string awaited() const = 0;
  virtual bool awaits_owner() const noexcept = 0;

  // All ranks agree whether the step counts; every memory follows. Waits for the other ranks.
  virtual StepReport end() = 0;
};

// Groups for one thread: of all ranks, and in a hierarchy those of this rank's group, and those at this rank's
// place of all groups.
struct Channels {
  std::unique_ptr<Group> all, inside, between;
};

// All ranks call it. REQUIRES: check_groups accepts `inside`.
Channels split_levels(Group& group, int inside);

// The one that options.inside asks for. Ranks need not wait for each other. Throws Error(kMismatch) if the store
// has memories of these tensors that belong to groups of another size.
std::unique_ptr<Runner> make_runner(const Sections& sections, const ExchangeOptions& options,
                                    const std::vector<TensorSpec>& tensors, Channels channels,
                                    Store& store);

}  // namespace thinwire
