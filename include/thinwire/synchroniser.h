// Local methods: workers take optimiser steps of their own, and a Synchroniser decides when they
// communicate and carries it out.
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

// A round in which a worker took part in an asynchronous run, as its RoundReport says.
struct RecordedRound {
  uint64_t round = 0;
  uint64_t step = 0;
  std::vector<int> ranks = {};
};

struct SynchroniserOptions {
  std::string method = "average";  // "leader:tau=64,groups=2": docs/leader-sgd.md
  std::string codec = "fp32";  // of rounds; lossy codecs send differences to what all ranks have

  // For methods that average: as in ExchangeOptions. "auto" is what suits the method. Other methods
  // take nothing else.
  std::string feedback = "auto";
  std::string exchange = "auto";
  // Where the momentum of the method's outer step acts (diloco): place_momentum. The momentum of a
  // worker's own optimiser stays with it, because its gradients stay on the rank.
  std::string momentum = "auto";

  uint64_t seed = 0;
  int max_skipped = 5;      // this many bad rounds in a row stop the run; 0: never
  uint32_t generation = 0;  // of the group, in every frame

  std::string host = "";  // this rank's host, if groups are hosts; empty: the system's name

  // For methods that choose leaders: returns the loss by which this worker is judged in a round, at
  // these parameters, instead of the mean of its training losses. It is called in after_step, on
  // that thread. Set it on all ranks or on none. It should use the same samples on every rank.
  std::function<double(std::span<const float> parameters)> judge = nullptr;

  // For asynchronous workers: all rounds of this worker in an earlier run, which are repeated.
  std::optional<std::vector<RecordedRound>> recorded = std::nullopt;
};

// The report of one round, on this rank. Bytes include all messages of the round.
struct RoundReport {
  uint64_t round = 0;  // number of rounds before this one
  uint64_t step = 0;   // this worker's local steps so far
  bool skipped = false;
  Fault fault;  // if skipped: parameters and memories are as they were

  // For methods whose rounds are of a part of the parameters and may overlap local steps: the part,
  // counted from 0, and this worker's local steps when its values were taken. fragment is -1 for
  // other methods.
  int fragment = -1;
  uint64_t begun = 0;

  bool global = true;      // ranks of all groups took part, not only those of this rank's
  std::vector<int> ranks;  // that took part, for methods whose rounds may be of some ranks
  // For methods with leaders, and empty for an asynchronous worker that is its group alone in a
  // round of groups.
  std::vector<double> losses;  // of `ranks`; +Inf: not finite
  std::vector<int> leaders;    // of each group that took part; -1: none can lead
  int leader = -1;             // of all groups, in a global round

  uint64_t values = 0;         // values in the payloads
  uint64_t payload_bytes = 0;  // the codec's bytes: what this rank encoded, or the leaders' weights
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t between_bytes = 0;  // part of sent_bytes: weights that left this rank's group
  double seconds = 0;          // of the round, waiting included
};

// A lost worker, without which the others go on.
struct LostWorker {
  int rank = 0;
  std::string why = {};  // "the disk is full", "process 4711 has ended"
  // Of data-parallel workers: the l2 norm of what its memories owed when it last told.
  std::optional<double> owed = {};
};

// Writes the report as one line of JSON, without a line break.
std::string to_json(const RoundReport& report);

// One worker's side of a local method. All workers begin with the same parameters, step by
// themselves and call after_step after each step. They call it equally often on every rank, unless
// the method has asynchronous workers. One thread builds, uses and destroys a synchroniser. An
// error other than a broken contract ends it: every later call throws it again, and those of other
// ranks fail with an error that names this rank.
class Synchroniser {
 public:
  virtual ~Synchroniser() = default;

  // Adds the method's own term, at `parameters`, to `gradient`. If adjusts_gradient says so, call
  // it between the backward pass and the optimiser's step.
  virtual bool adjusts_gradient() const noexcept { return false; }
  virtual void adjust_gradient(std::span<const float> /*parameters*/,
                               std::span<float> /*gradient*/) {}

  // Reports that the worker took a local step, whose batch had this loss. If a round is due,
  // communicates and changes `parameters`. Returns the report of the round, or nothing if there was
  // none. Throws the group's errors, and Error(kNonFinite / kCorrupt) after options.max_skipped bad
  // rounds in a row.
  virtual std::optional<RoundReport> after_step(std::span<float> parameters, double loss) = 0;

  // For asynchronous workers, which take steps at speeds of their own: the mean number of steps of
  // a worker from round to round. 0 if all workers take the same steps.
  virtual uint64_t asynchronous_period() const noexcept { return 0; }

  // Says that this worker takes no more steps; asynchronous workers go on without it. For
  // asynchronous workers it returns when all have left or are lost, with the ranks that left, the
  // same on each of them. Other methods return nothing.
  virtual std::vector<int> leave() { return {}; }

  // Says that this worker cannot go on. Returns true if the others are told and go on without it;
  // this worker then only destroys its own objects. Returns false if its error is also theirs.
  virtual bool fail(std::string_view /*why*/) noexcept { return false; }

  // On rank 0 of asynchronous workers: the workers lost so far, in the order of their loss.
  virtual std::vector<LostWorker> lost() const { return {}; }

  // Right after a global round that counted: the leader's parameters, as all workers in the round
  // received them. Empty for methods without leaders.
  virtual std::span<const float> led_by() const { return {}; }

  // Computes the parameters that should be evaluated, with the same bits on every rank: the
  // method's centre if it has one, otherwise the mean of all workers' parameters. Changes no
  // worker. All ranks call it, or all that left.
  virtual void centre(std::span<const float> parameters, std::span<float> out) = 0;
};

// One row of the registry of local methods.
struct SynchroniserInfo {
  std::string_view name;
  std::string_view summary = {};
  std::string_view paper = {};
  std::vector<OptionInfo> options = {};
  bool by_loss = false;  // compares workers by the losses that after_step is given, or by a judge
};

std::vector<SynchroniserInfo> list_synchronisers();

// A method of the registry, and the options that a text gives it.
struct NamedSynchroniser {
  const SynchroniserInfo* entry;
  Options options;
};

// Finds the row that SynchroniserOptions::method names, as far as that is known without ranks.
// Errors name the known methods or options.
Result<NamedSynchroniser> find_synchroniser(const std::string& method);

// Builds this rank's side. Throws Error(kMismatch), which names the first difference, unless all
// ranks agree on tensors, options and version, and throws errors about the options.
//
// Parameters are one vector: the values of `tensors`, one after another. `start` is the parameters
// with which all workers begin, the same bits on every rank. State in a loaded store takes
// precedence over it. Memories are opened in `store` below "sync/". `group` and `store` must
// outlive the synchroniser. `group` is split, so the caller may go on using it.
std::unique_ptr<Synchroniser> make_synchroniser(Group& group, Store& store,
                                                std::vector<TensorSpec> tensors,
                                                std::span<const float> start,
                                                const SynchroniserOptions& options);

}  // namespace thinwire
