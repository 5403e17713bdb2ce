// Shards of the training data by label, so that workers see different mixtures of classes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/options.h"
#include "thinwire/torch.h"
#include "train/timetable.h"

namespace thinwire {

// The alpha of "dirichlet:alpha=0.5", the text of data.shards. Throws Error: kUnknownName for
// another rule, kBadOption for another option.
double shard_alpha(const std::string& text);

// Which samples each worker has. Of every class the workers' shares are drawn from a Dirichlet
// distribution with all parameters alpha: at 0.1 most of a class is with one worker, at 100 all
// have about as much. A pure function of its arguments; every sample is in one shard.
std::vector<std::vector<uint64_t>> dirichlet_shards(std::span<const int64_t> labels, int workers,
                                                    double alpha, uint64_t seed);

// The shard of this rank, by the labels that rank 0 reads. Called by all ranks. Throws
// AgreedError(kBadOption) where a worker is left without samples, or samples have not one label
// each.
std::vector<uint64_t> own_shard(Group& group, const Dataset& data, double alpha, uint64_t seed);

// The order in which a worker sees its shard: each time round another one. Where shards differ in
// size a small one comes round more often; a step takes as many samples as without shards.
class ShardSampler {
 public:
  // REQUIRES: a sample at least.
  ShardSampler(const Timetable& timetable, std::vector<uint64_t> shard, uint64_t rank,
               uint64_t ranks, uint64_t seed);

  // This rank's samples of `step`; good until the next call.
  std::span<const uint64_t> ids(uint64_t step);

 private:
  uint64_t taken_before(uint64_t step) const;

  const Timetable timetable_;
  const std::vector<uint64_t> shard_;
  const uint64_t rank_, ranks_, seed_;
  uint64_t round_ = UINT64_MAX;
  std::vector<uint64_t> order_;  // of the round
  std::vector<uint64_t> ids_;
};

}  // namespace thinwire
