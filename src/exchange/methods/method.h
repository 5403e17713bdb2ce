// Method: the interface of exchange methods (dense, gather, ...), and MethodEntry, their row in the
// registry.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "exchange/layout/plan.h"
#include "exchange/owner/statistics_round.h"
#include "exchange/rules/combine.h"
#include "exchange/step/step_context.h"
#include "exchange/wire/active_stream.h"
#include "thinwire/codec.h"
#include "thinwire/store.h"

namespace thinwire {

class Roster;

// All buckets of a section, step after step. In a step every bucket begins once, in their order,
// with calls of advance between; when all have begun, advance is called until done. Means lie in
// the streams' result(), with the same bits on every rank, unless the step has a fault. Buffers are
// made once. Used by one thread.
class Method {
 public:
  virtual ~Method() = default;

  // Compresses the bucket's pieces and starts its messages. REQUIRES: their tensors are open.
  virtual void begin(size_t bucket) = 0;

  // Moves every bucket that has begun as far as it goes without waiting; returns whether any moved.
  virtual bool advance() = 0;

  // Whether all buckets that have begun in this step are means.
  virtual bool done() const noexcept = 0;

  // The next three are for rules over whole vectors (vector_rule.h). With one, results are combined
  // and handed out only after the last bucket, and advance goes on after choose.

  // Returns whether every contribution of the step that this rank combines has arrived.
  virtual bool has_rows() const noexcept { return false; }

  // Adds the statistics of the rows that this rank has. Called once, when all methods of the
  // exchange have their rows.
  virtual void add_statistics(StatisticsRound& /*to*/) {}

  // Receives the weights of the rows, which stay valid until the step ends. Called once, after
  // add_statistics.
  virtual void choose(std::span<const float> /*row_weights*/) {}

  // Where ranks may be left out (MethodParts::roster): once idle, what is combined are the rows of
  // those ranks that are true, by `rule`, which outlives the step; add_statistics, if it is a
  // VectorRule, and choose follow.
  virtual void combine_only(const std::vector<bool>& /*ranks*/, const Combine& /*rule*/) {}

  // The step counts, or never happened: for what the method itself remembers.
  virtual void end(bool /*skipped*/) noexcept {}

  // The values that a rank owns, in any order. Of methods that leave shards.
  virtual std::vector<Piece> owned(size_t /*rank*/) const { return {}; }

  // A transfer that it waits for, for errors; null when it waits for none.
  virtual const Transfer* awaited() const noexcept = 0;

  // Returns whether the awaited message is a result that another rank combines from the messages of
  // all ranks. If a rank stalls, that owner notices it first.
  virtual bool awaits_owner() const noexcept { return false; }
};

// What a method is made of; outlives it.
struct MethodParts {
  StepContext& context;
  const Streams& streams;
  const std::vector<Bucket>& buckets;
  Store& store;
  const Combine& combine;
  size_t bucket_bytes = 0;
  size_t chunk_values = 0;
  bool shards = false;       // the mean of what a rank owns lies in its result() alone
  int first_tag = 0;         // of two for each bucket; other tags are those of other methods
  Roster* roster = nullptr;  // where ranks may be left out; null: a fault skips the step
};

struct MethodEntry {
  std::string_view name;  // what users type; docs/collectives.md has a section of this name

  // Method "auto" is the one with the smallest preference among those that carry the codec; those
  // of preference 0 are never chosen.
  int preference = 0;
  bool (*carries)(const Codec& codec) = nullptr;
  std::string_view
      refusal;  // "cannot add payloads of": what it says of a codec that it does not carry

  bool cuts_anywhere = false;  // buckets may cut a stream at any value
  bool combines = false;       // takes every rule of combine.h; the others give means alone
  bool everybody = false;      // each rank combines the contributions of all by itself
  bool in_place =
      false;  // works on full results by ActiveStream's functions alone, wherever they lie
  bool leaves_shards = false;  // can leave results with their owners
  bool blocks = false;         // begin waits for other ranks

  // Whether owners of parts of the stream keep what could not be handed out, as "<stream>/owner" in
  // the store. Of streams that are not plain; `keeps_rest` is ActiveStream::keeps_rest().
  bool (*owners_remember)(const Codec& codec, bool keeps_rest) = nullptr;

  std::unique_ptr<Method> (*make)(const MethodParts& parts) = nullptr;
};

// All methods, in the order of docs/collectives.md.
std::span<const MethodEntry* const> list_methods() noexcept;

inline bool no_owner_remembers(const Codec& /*codec*/, bool /*keeps_rest*/) { return false; }

}  // namespace thinwire
