// Local methods: workers take steps of their own, and a Synchroniser decides when they talk, and what
// happens then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"

namespace thinwire {

// A round that a worker held in a run with asynchronous workers, as its RoundReport has it.
struct RecordedRound {
  uint64_t round = 0;
  uint64_t step = 0;
  std::vector<int> ranks = {};
};

struct SynchroniserOptions {
  std::string method = "average";  // "leader:tau=64,groups=2": docs/leader-sgd.md
  std::string codec = "fp32";  // of what travels; others carry differences to what all ranks have

  // Of methods that average: as in ExchangeOptions. auto is what suits the method.
  std::string feedback = "auto";
  std::string exchange = "auto";
  // Where the momentum of the method's outer step acts (diloco): place_momentum. That of a worker's own
  // optimiser stays with it, as its gradients stay on the rank.
  std::string momentum = "auto";

  uint64_t seed = 0;
  int max_skipped = 5;      // this many bad rounds in a row stop the run; 0: never
  uint32_t generation = 0;  // of the group, in every frame

  std::string host = "";  // where groups are hosts: this rank's; empty: what the system says

  // Where leaders are chosen: the loss that this worker is judged by in a round, at these parameters, in
  // the place of the mean of its training losses. Called in after_step, by its thread; set by all ranks or
  // none. What it returns should be of the same samples on every rank.
  std::function<double(std::span<const float> parameters)> judge = nullptr;

  // Asynchronous workers only: all rounds of this worker, which are held again as they were.
  std::optional<std::vector<RecordedRound>> recorded = std::nullopt;
};

// One communication, on this rank. Bytes include everything that it takes.
struct RoundReport {
  uint64_t round = 0;  // communications before this one
  uint64_t step = 0;   // this worker's local steps so far
  bool skipped = false;
  Fault fault;  // when skipped: parameters and memories are as they were

  bool global = true;          // ranks of all groups talked, not only those of this rank's
  std::vector<int> ranks;      // that talked, where not all do always
  std::vector<double> losses;  // of `ranks`, where leaders are chosen; +Inf: bad
  std::vector<int> leaders;    // of each group that talked, ranks of the whole; -1: none is fit
  int leader = -1;             // of all groups, in a global round

  uint64_t values = 0;         // that the payloads stand for
  uint64_t payload_bytes = 0;  // codec's bytes: what this rank encoded, or the leaders' weights
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t between_bytes = 0;  // of those sent: weights that left this rank's group for another
  double seconds = 0;          // spent in it, waiting included
};

// A worker that the others go on without.
struct LostWorker {
  int rank = 0;
  std::string why = {};  // "the disk is full", "process 4711 has ended"
};

// The report as one line of JSON, without a line break.
std::string to_json(const RoundReport& report);

// One worker's side of a local method. All workers begin with the same parameters, step by
// themselves and call after_step each time: as often on every rank, unless the method has asynchronous
// workers. Built, used and destroyed by one thread. An error other than a broken contract ends it:
// every later call throws it again, and those of other ranks fail naming this one.
class Synchroniser {
 public:
  virtual ~Synchroniser() = default;

  // Called between the backward pass and the optimiser's step, by those whose method asks for it:
  // adds the method's own term, at `parameters`, to `gradient`.
  virtual bool adjusts_gradient() const noexcept { return false; }
  virtual void adjust_gradient(std::span<const float> /*parameters*/,
                               std::span<float> /*gradient*/) {}

  // The worker took a local step, whose batch had this loss. When the method says so, talks and
  // changes `parameters`; returns what became of it, nothing when there was no talk. Throws the
  // group's errors, and Error(kNonFinite / kCorrupt) after options.max_skipped bad rounds in a row.
  virtual std::optional<RoundReport> after_step(std::span<float> parameters, double loss) = 0;

  // Whether workers take steps at speeds of their own, and how many each takes on average from round to
  // round; 0 where all take the same ones.
  virtual uint64_t asynchronous_period() const noexcept { return 0; }

  // This worker takes no more steps; asynchronous ones go on without it. These return when all have
  // left or are lost: the ranks that left, the same on each of them; others return nothing.
  virtual std::vector<int> leave() { return {}; }

  // This worker can go on no more. True where the others are told and go on without it: all that is
  // left to do here is to destroy what is its own. False where its error is theirs.
  virtual bool fail(std::string_view /*why*/) noexcept { return false; }

  // On rank 0 of asynchronous workers: those that were lost so far, in this order.
  virtual std::vector<LostWorker> lost() const { return {}; }

  // Right after a global round that counted: the leader's parameters as all who were there took them;
  // empty where leaders are not chosen.
  virtual std::span<const float> led_by() const { return {}; }

  // What the method wants judged, with the same bits on every rank: its centre if it has one, else
  // the mean of all workers' parameters. Changes no worker. Called by all ranks, or all that left.
  virtual void centre(std::span<const float> parameters, std::span<float> out) = 0;
};

// One row of the registry.
struct SynchroniserInfo {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};
};

std::vector<SynchroniserInfo> list_synchronisers();

// Whether SynchroniserOptions::method may be `text`, as far as that can be said without ranks; fails with
// the known names or options.
Status check_synchroniser_text(const std::string& text);

// Builds this rank's side and makes sure that all ranks agree on tensors, options and version; throws
// Error(kMismatch) naming the first difference otherwise, and whatever is wrong with the options.
// Parameters are one vector: the values of `tensors`, one after another. `start` is where all
// workers begin, the same bits on every rank; what a loaded store knows better comes from there.
// Memories are opened in `store` below "sync/". `group` and `store` must outlive it; `group` is
// split, so the caller may go on using it.
std::unique_ptr<Synchroniser> make_synchroniser(Group& group, Store& store,
                                                std::vector<TensorSpec> tensors,
                                                std::span<const float> start,
                                                const SynchroniserOptions& options);

}  // namespace thinwire
