// OwnerMemory: what an owner's codec lost of the means of its shard, kept for later steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/aligned.h"
#include "exchange/layout/range.h"
#include "feedback/follows_ranks.h"
#include "thinwire/feedback.h"
#include "thinwire/moments.h"
#include "thinwire/state.h"

namespace thinwire {

// Error feedback on the mean, as each rank has on its gradient:
//
//   u_t = mean_t + r_{t-1},   r_t = u_t - decode(encode(u_t)),   r_0 = 0
//
// Of one stream, on the rank that owns the shard: one or many ranges of it. Unlike a rank's
// residual it is owed to the mean as it stands, not by one n-th. Two buffers that commit swaps;
// rollback has nothing to undo.
//
// What lies outside the shard, because another codec or method deals out others, strays: it goes to
// this rank's own memory of the stream, n times, as what a rank sends counts one n-th, and from
// there on is the ranks' to send. A memory that treats gradients and what it kept alike takes it
// with the next gradient.
//
// The saved state is pieces of the stream, [begin, begin + count), strays included. Loaded at
// another number of ranks, each takes what lies in its new shard from the pieces of all, and
// nothing is lost.
class OwnerMemory final : public Stateful, public FollowsRanks {
 public:
  // Of one of `ranks`. REQUIRES: ranges in ascending order that do not overlap.
  OwnerMemory(size_t stream_count, std::vector<Range> shard, size_t ranks);
  OwnerMemory(size_t stream_count, Range shard, size_t ranks)
      : OwnerMemory(stream_count, std::vector<Range>{shard}, ranks) {}

  // Goes on with another shard: what lies in both is kept, what does not strays.
  void move_to(std::vector<Range> shard);
  void move_to(Range shard) { move_to(std::vector<Range>{shard}); }

  // It is owed to the mean whatever n is; move_to says what becomes of the shard.
  void follow_ranks(size_t /*before*/, size_t now) override { ranks_ = now; }

  // Adds n x what strays to `gradient`, of the whole stream. After commit it strays no more.
  void release_strays(std::span<float> gradient) noexcept;
  bool has_strays() const noexcept { return !strays_.empty(); }

  // Between two steps: gives n x what strays to `memory`, of the same stream, if that takes debts
  // over; else it goes on straying.
  void hand_strays_to(Feedback& memory);

  struct Sum {
    std::span<float> values;  // mean + what was left; receives what is left now
    Moments moments;
  };

  // REQUIRES: [begin, begin + mean.size()) lies in one range of the shard.
  Sum add(size_t begin, std::span<const float> mean) noexcept;

  // The same for the whole shard, its ranges one after another.
  Sum add_whole(std::span<const float> mean) noexcept { return add_at(0, mean); }

  void commit() noexcept;
  void rollback() noexcept { released_ = false; }

  size_t held_bytes() const override {
    return (committed_.size() + next_.size() + stray_values_.size()) * sizeof(float);
  }
  StateArrays save() const override;
  Status load(const StateArrays& arrays) override;

 private:
  Sum add_at(size_t at, std::span<const float> mean) noexcept;
  size_t range_from(size_t begin) const noexcept;
  void take(Range piece, std::span<const float> from, std::span<float> to) const;
  void add_strays(Range piece, std::span<const float> from);

  size_t stream_count_;
  std::vector<Range> shard_;
  size_t ranks_;
  std::vector<size_t> starts_;  // of each range, in the memory
  std::vector<Range> strays_;
  std::vector<float> stray_values_;  // one piece after another
  bool released_ = false;
  AlignedVector<float> committed_;
  AlignedVector<float> next_;
};

}  // namespace thinwire
