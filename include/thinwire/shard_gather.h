// Compressed all-gather: every rank has a shard, and afterwards every rank has all shards.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/stream.h"

namespace thinwire {

struct ShardGatherOptions {
  // Any codec that sends every value and whose ranks agree on nothing beforehand: there is no
  // memory that would send later what it leaves out.
  std::string codec = "fp32";
  uint64_t seed = 0;
  uint32_t generation = 0;  // of the group, in every frame
};

// What one gathering came to, on this rank.
struct ShardGatherReport {
  bool skipped = false;
  Fault fault;                 // when skipped; the same on every rank
  uint64_t payload_bytes = 0;  // of this rank's own shard
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
};

// The counterpart of Results::kShard: what owners made of their shards, weights for example, goes
// to all. It starts from exact values every time, so that what a codec loses in one step is not
// lost in the next. Used by one thread.
class ShardGather {
 public:
  virtual ~ShardGather() = default;

  // `mine` is this rank's shard, part after part. `all` receives the shards of all ranks in rank
  // order, as their payloads decode; also this rank's own, so that all ranks have the same bits. A
  // value that is not finite on any rank, or a frame that is corrupt, makes all ranks skip the
  // step; `all` is then of no use. `mine` must not overlap `all`. Blocks; called by all ranks with
  // the same `step`. A rank sends n - 1 copies of its length (8 bytes) and of its frames, one for
  // each part, then takes part in one agreement. Throws Error(kContract) for spans of another
  // length, and the group's errors.
  virtual ShardGatherReport gather(uint64_t step, std::span<const float> mine,
                                   std::span<float> all) = 0;

  // Where the shard of a rank begins in `all`; of number n: the length of all.
  virtual size_t begin_of(int rank) const = 0;
};

// `shards` has the parts of every rank's shard; each part is coded by itself. All ranks give the
// same; throws Error(kMismatch) naming the first difference otherwise, and Error(kUnsupported) for
// another codec. `group` must outlive the result; it is split, so the caller may go on using it.
std::unique_ptr<ShardGather> make_shard_gather(Group& group,
                                               const std::vector<std::vector<TensorSpec>>& shards,
                                               const ShardGatherOptions& options);

}  // namespace thinwire
