// RankSum: one tensor of each rank, compressed, summed on all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/boundary.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// Of one rank in one step.
struct SumCounters {
  uint64_t messages = 0, values = 0, payload_bytes = 0,
           message_bytes = 0;                     // once for each other rank
  double wait = 0, compress = 0, decompress = 0;  // seconds
};

// Every rank sends the message of its tensor to all others, and adds what all messages decode to,
// its own too, in the order of the ranks. So all ranks have the same bits. A rank sends n - 1
// messages: for two ranks as many bytes as a sum needs at least, for n ranks n/2 times as many. In
// return, what is sent was compressed once only.
class RankSum {
 public:
  // The spec says all but seed, stream and sender. Ends are in the store, as "tensor/NAME/...".
  // Throws AgreedError for a spec that is wrong. Called by all ranks of `group`; `first` is the
  // whole group's rank of its rank 0.
  RankSum(const BoundarySpec& spec, Group& group, int first, uint32_t stream, Store& store);

  // The sum of the tensors of this visit, contiguous float32 with the samples first. If a rank's
  // values are not finite, the sum is NaN, on all ranks; `mine_finite` says whether this rank's
  // were. Throws Error naming the rank whose message is no message of this sum, and the group's
  // errors. Called by all ranks.
  torch::Tensor sum(const torch::Tensor& values, const Visit& visit, SumCounters& counters,
                    bool& mine_finite);

  void commit();
  void rollback();

  const std::string& name() const noexcept { return name_; }

 private:
  const std::string name_;
  Group& group_;
  const int first_;
  BoundarySender* sender_ = nullptr;
  std::vector<BoundaryReceiver*> receivers_;  // by rank; its own, too
  std::vector<std::byte> message_;
};

}  // namespace thinwire
