// What the owner of a shard keeps of the means that its codec could not hand out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "core/aligned.h"
#include "exchange/chunk_plan.h"
#include "thinwire/moments.h"
#include "thinwire/state.h"

namespace thinwire {

// Error feedback on the mean, as each rank has on its gradient:
//
//   u_t = mean_t + r_{t-1},   r_t = u_t - decode(encode(u_t)),   r_0 = 0
//
// Of one stream, on the rank that owns the shard. Unlike a rank's residual it is owed to the mean as
// it stands, not by one n-th. Two buffers that commit swaps; rollback has nothing to undo.
//
// The saved state is a piece of the stream, [begin, begin + count): loaded at another number of
// ranks, each takes what lies in its new shard from the pieces of all, and nothing is lost. Where a
// rank is given no piece for a part of its shard, that part starts at zero.
class OwnerMemory final : public Stateful {
 public:
  OwnerMemory(size_t stream_count, Range shard);

  // Goes on with another shard: keeps what lies in both, as the owner of the rest is another rank.
  void move_to(Range shard);

  struct Sum {
    std::span<float> values;  // mean + what was left; receives what is left now
    Moments moments;
  };

  // REQUIRES: [begin, begin + mean.size()) lies in the shard.
  Sum add(size_t begin, std::span<const float> mean) noexcept;

  void commit() noexcept { committed_.swap(next_); }
  void rollback() noexcept {}

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  size_t stream_count_;
  Range shard_;
  AlignedVector<float> committed_;
  AlignedVector<float> next_;
};

}  // namespace thinwire
