// SyncRule: the base of all synchronisers: channel, memory, options, and the end of a round.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sync/replica_mean.h"
#include "sync/sync_memory.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// What a rule is made from.
struct SyncSetup {
  Group& group;  // the caller's
  Store& store;
  std::vector<TensorSpec> tensors;
  std::span<const float> start;
  const SynchroniserOptions& options;
};

// Made in two steps: the constructor opens memories and finds mistakes, connect talks. Between the
// two all ranks compare agreement().
class SyncRule : public Synchroniser {
 public:
  std::optional<RoundReport> after_step(std::span<float> parameters, double loss) final;
  void centre(std::span<const float> parameters, std::span<float> out) final;

  // Lines that all ranks must share, besides options and tensors.
  std::string agreement() const;

  void connect(Group& group);

 protected:
  SyncRule(const SyncSetup& setup, const std::string& name, std::vector<SyncMemory::Vector> vectors,
           std::vector<SyncMemory::Numbers> numbers = {});

  // Whether all ranks must have counted the same steps and rounds.
  virtual bool counts_alike() const { return true; }

  // What it remembers and all ranks must have alike, as a text.
  virtual std::string shared_memory() const { return ""; }

  // Called by connect, with the channel in place.
  virtual void join() {}

  // A step of this worker; memory().steps counts it already.
  virtual std::optional<RoundReport> step(std::span<float> parameters, double loss) = 0;

  // Writes the rule's own centre; false when it has none.
  virtual bool own_centre(std::span<float> /*out*/) { return false; }

  // Whether the others go on when this rank fails, which tells them by itself.
  virtual bool is_survived() const { return false; }

  // After leave: the ranks that left, when some did not; empty otherwise.
  virtual std::vector<int> remaining() const { return {}; }

  // Of the whole, this rule's own.
  Group& channel() noexcept { return *channel_; }
  const Group& channel() const noexcept { return *channel_; }
  Store& store() noexcept { return store_; }  // the caller's
  SyncMemory& memory() noexcept { return memory_; }
  const SyncMemory& memory() const noexcept { return memory_; }
  const SynchroniserOptions& options() const noexcept { return options_; }
  const std::vector<TensorSpec>& tensors() const noexcept { return tensors_; }
  size_t count() const noexcept { return count_; }

  // Whether this worker's steps so far are a multiple of `period`.
  bool every(uint64_t period) const noexcept { return memory_.steps % period == 0; }

  // Counts the round, skipped or not. Throws after too many skipped ones; all ranks alike.
  void end_round(const RoundReport& report);

 private:
  // Runs `body`; an error becomes the end of this object, and of the other ranks' waits.
  template <typename Body>
  auto guarded(const Body& body) -> decltype(body());
  void mean_of(const std::vector<int>& ranks, std::span<const float> parameters,
               std::span<float> out);

  Store& store_;
  const std::vector<TensorSpec> tensors_;
  const SynchroniserOptions options_;
  const std::string name_;
  const size_t count_;
  SyncMemory& memory_;
  std::unique_ptr<Group> channel_;
  Store plain_store_;                        // of what remembers nothing
  std::unique_ptr<ReplicaMean> plain_mean_;  // made by the first call of centre
  int skipped_ = 0;                          // rounds in a row
  std::exception_ptr over_;
};

}  // namespace thinwire
