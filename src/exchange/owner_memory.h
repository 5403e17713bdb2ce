// What the owner of a shard keeps of the means that its codec could not hand out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "exchange/chunk_plan.h"
#include "thinwire/moments.h"
#include "thinwire/state.h"

namespace thinwire {

// Error feedback on the mean, as each rank has on its gradient:
//
//   u_t = mean_t + r_{t-1},   r_t = u_t - decode(encode(u_t)),   r_0 = 0
//
// Of one stream, on the rank that owns the shard: one or many ranges of it. Unlike a rank's residual
// it is owed to the mean as it stands, not by one n-th. Two buffers that commit swaps; rollback has
// nothing to undo.
//
// The saved state is pieces of the stream, [begin, begin + count): loaded at another number of
// ranks, each takes what lies in its new shard from the pieces of all, and nothing is lost. Where a
// rank is given no piece for a part of its shard, that part starts at zero.
class OwnerMemory final : public Stateful {
 public:
  // REQUIRES: ranges in ascending order that do not overlap.
  OwnerMemory(size_t stream_count, std::vector<Range> shard);
  OwnerMemory(size_t stream_count, Range shard)
      : OwnerMemory(stream_count, std::vector<Range>{shard}) {}

  // Goes on with another shard: keeps what lies in both, as the owner of the rest is another rank.
  void move_to(std::vector<Range> shard);
  void move_to(Range shard) { move_to(std::vector<Range>{shard}); }

  struct Sum {
    std::span<float> values;  // mean + what was left; receives what is left now
    Moments moments;
  };

  // REQUIRES: [begin, begin + mean.size()) lies in one range of the shard.
  Sum add(size_t begin, std::span<const float> mean) noexcept;

  // The same for the whole shard, its ranges one after another.
  Sum add_whole(std::span<const float> mean) noexcept { return add_at(0, mean); }

  void commit() noexcept { committed_.swap(next_); }
  void rollback() noexcept {}

  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  Sum add_at(size_t at, std::span<const float> mean) noexcept;
  size_t range_from(size_t begin) const noexcept;
  void take(Range piece, std::span<const float> from, std::span<float> to) const;

  size_t stream_count_;
  std::vector<Range> shard_;
  std::vector<size_t> starts_;  // of each range, in the memory
  AlignedVector<float> committed_;
  AlignedVector<float> next_;
};

}  // namespace thinwire
