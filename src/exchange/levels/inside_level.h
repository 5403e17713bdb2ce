// InsideLevel: a group adds its ranks' gradients at the holders, which hand out the means later.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exchange/methods/bucket_method.h"
#include "exchange/methods/method.h"
#include "exchange/owner/chunk.h"
#include "exchange/step/tensor_table.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire {

// The buckets of the sums inside a group: each tensor is one stream.
Plan plan_inside(const std::vector<TensorSpec>& tensors, const ExchangeOptions& options);

// Its streams, in fp32 and without memory.
Streams inside_streams(const Plan& plan, const ExchangeOptions& options, Store& store);

// Buckets that are handed out at a time: their messages are copies of what they carry.
inline constexpr size_t kHandOutWindow = 4;

// Uncompressed, and without memory: nothing here outlasts a step. Each tensor is one stream, in
// fp32; a bucket cuts it where it is full.
//
//   1. Method dense, in which the holder of a tensor (holders.h) owns it: the result is
//      (x_0 + ... + x_(g-1)) (1/g), added in the order of ranks, in the holder's tensors.
//   2. The caller replaces it, in place.
//   3. HandOut: every rank has what the holders have.
//
// A step is begin; open of a bucket's tensors, then begin_bucket, for every bucket; hand_out once
// all are summed and replaced; close once handed_out; with advance in between. Used by one thread
// at a time.
class InsideLevel {
 public:
  // Rank r of the group is rank first_rank + r of the exchange.
  InsideLevel(std::unique_ptr<Group> group, const std::vector<TensorSpec>& tensors,
              const std::vector<size_t>& holder_of, const ExchangeOptions& options, Store& store,
              int first_rank);

  Group& group() const noexcept { return *group_; }
  const Plan& plan() const noexcept { return plan_; }
  size_t value_count() const noexcept { return tensors_.total_count(); }

  // `gives_zeros`: whatever this rank's tensors hold.
  void begin(uint64_t step, bool gives_zeros);
  void open(size_t tensor, const TensorView& view) { tensors_.open(tensor, view); }
  void begin_bucket(size_t bucket);
  bool advance();

  // Whether the group's mean of a tensor that this rank holds is there, and where.
  bool has_mean(size_t tensor) const noexcept { return missing_[tensor] == 0; }
  std::span<float> values(size_t tensor) noexcept { return tensors_.values(tensor); }
  bool summed() const noexcept { return summing_.empty(); }  // all buckets that have begun

  void hand_out() { given_ = 0; }
  bool handed_out() const noexcept { return under_way_.empty() && given_ == gives_.size(); }
  void close(bool skipped);

  // Its faults name streams of plan() and ranks of the group.
  const StepContext& context() const noexcept { return context_; }

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  void note_sum(size_t bucket) noexcept;

  const std::unique_ptr<Group> group_;
  const Plan plan_;
  TensorTable tensors_;
  StepContext context_;
  Streams streams_;
  std::vector<size_t> holder_of_;  // by stream
  Coders coders_;
  std::vector<std::unique_ptr<BucketSteps>> sums_, gives_;  // by bucket
  std::vector<size_t> pieces_;    // by tensor, if this rank holds it: in how many buckets it is
  std::vector<size_t> missing_;   // of these, not summed yet
  std::deque<size_t> summing_;    // buckets on their way to the holders
  std::deque<size_t> under_way_;  // buckets on their way back
  size_t given_ = SIZE_MAX;       // buckets that began to be handed out; SIZE_MAX: it is too early
};

}  // namespace thinwire
