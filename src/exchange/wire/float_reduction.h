// FloatReduction: replaces floats of every rank by their mean or maximum, the same bits everywhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exchange/step/step_context.h"
#include "exchange/wire/pending.h"

namespace thinwire {

// F floats are cut into n equal ranges, the shards: shard j is floats floor(F j / n) to
// floor(F (j+1) / n). A rank sends shard j to rank j, which combines what it got in rank order,
//
//   mean: (x_0 + x_1 + ... + x_(n-1)) (1/n) in fp32      max: the largest
//
// and sends that to all. Each message is one frame of floats as they are, so all lengths are known
// beforehand, and a rank that has nothing to give sends a flagged one as long. Messages: 2 (n-1),
// bytes sent: 4F (n-1)/n for the parts, as many for what they come to, and 48 for each message.
// Sums start from -0.0, as in dense.cc. Not shared between threads; used for one reduction after
// another.
class FloatReduction {
 public:
  enum class Rule : uint8_t { kMean, kMax };

  // `tag` is that of parts, `tag + 1` that of results.
  FloatReduction(StepContext& context, int tag);

  // What the frames say: the codec, the last of the streams whose floats they are, and the round. A
  // fault that is noted for that stream yields to one that its owner noted for any of them.
  struct Subject {
    uint8_t codec = 0;
    size_t stream = 0;
    uint8_t round = 0;
  };

  // Starts to combine `values`, which become the result and stay until done; `spoilt`: this rank
  // gives none.
  void begin(Rule rule, const Subject& subject, std::span<float> values, bool spoilt);

  // Goes as far as it can without waiting; returns whether it got anywhere.
  bool advance();
  bool done() const noexcept { return taken_ == peers_.size() && sent_; }

  // After done. Whether there is no result: a rank gave nothing, bytes were corrupt or a sum
  // overflowed. Faults are noted where they are seen, except where this rank's own sum overflowed:
  // then overflow() is the place of the first such float, otherwise npos.
  bool spoilt() const noexcept { return spoilt_; }
  size_t overflow() const noexcept { return overflow_; }
  static constexpr size_t npos = static_cast<size_t>(-1);

  // A transfer that it waits for, for errors; null when it waits for none.
  const Transfer* awaited() const noexcept;

 private:
  struct Peer {
    Buffer part_out, part_in, result_in;
    Pending sends_part, receives_part, sends_result, receives_result;
    bool taken = false;
  };

  size_t begin_of(size_t rank) const noexcept { return values_.size() * rank / peers_.size(); }
  std::span<float> shard(size_t rank) const noexcept {
    return values_.subspan(begin_of(rank), begin_of(rank + 1) - begin_of(rank));
  }
  std::span<float> sum() noexcept;

  // Of a rank's part of an owner's shard, and of what the owner makes of all parts.
  FrameHeader part_header(size_t owner, size_t sender) const noexcept;
  FrameHeader result_header(size_t owner) const noexcept;
  void write(FrameHeader header, std::span<const float> values, bool flagged,
             std::span<std::byte> message) const;
  std::span<const std::byte> read(const FrameHeader& expected, std::span<const std::byte> message,
                                  bool* flagged);
  void add(size_t rank);
  void combine(std::span<const std::byte> floats, size_t rank);
  void share();
  void take(size_t owner);
  bool all_sent();

  StepContext& context_;
  const int tag_;
  Rule rule_ = Rule::kMean;
  Subject subject_;
  std::span<float> values_;
  std::vector<Peer> peers_;  // by rank; this rank's own has its result as result_in
  Buffer sum_;               // of this rank's shard
  bool first_ = true;        // nothing was combined with it yet
  bool sum_spoilt_ = false;
  bool spoilt_ = false;
  size_t overflow_ = npos;
  size_t next_ = 0;   // rank to be added next
  size_t taken_ = 0;  // shards whose result is in place
  bool sent_ = true;
};

}  // namespace thinwire
