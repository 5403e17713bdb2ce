// WeightBroadcast: sends one worker's parameters to others as a frame, whole or as a difference.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "exchange/step/verdict.h"
#include "feedback/reference.h"
#include "stream/coded_stream.h"
#include "thinwire/frame.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// A broadcast that this rank takes part in.
struct Hop {
  Group* group = nullptr;
  int root = 0;
};

// With a lossless codec the receivers get the sender's bits. With any other they all keep r, at
// first the start, and
//   frame = encode(x - r),   r <- r + decode(frame)
// on the sender too: r is what everybody takes for x, with the same bits. What a frame does not
// carry of x is in the next difference, whoever sends that. 8 bytes per value besides the frame's,
// 12 if lossy.
//
// A round is send, then commit or rollback.
class WeightBroadcast {
 public:
  // Keeps r and the encoder's state in `store` as "sync/<name>/..." and calls itself stream number
  // `stream` in frames. `options` give codec, seed and generation.
  WeightBroadcast(Store& store, const std::string& name, size_t stream,
                  const std::vector<TensorSpec>& tensors, std::span<const float> start,
                  const SynchroniserOptions& options);

  // Moves the frame of rank `owner` along `route`; `mine` are its values there, and empty
  // elsewhere. What is wrong with a frame goes to `faults`. Throws Error(kCorrupt) for an
  // impossible length.
  void send(uint64_t round, int owner, std::span<const float> mine, std::span<const Hop> route,
            FaultLog& faults);

  // What all who took part in send took from it, the same bits, until the next send.
  // REQUIRES: no fault on any of them.
  std::span<const float> weights() const noexcept { return taken_; }
  const std::string& name() const noexcept { return stream_.spec().name; }
  uint64_t payload_bytes() const noexcept { return payload_bytes_; }  // of the last frame

  void commit() { stream_.commit(); }
  void rollback() { stream_.rollback(); }

  // XXH3 of r: the same wherever frames of this object go.
  uint64_t reference_checksum() const;

  // Between two rounds: gives all ranks of `group` one r. If theirs differ, they take that of the
  // rank with the most `rounds`, the lowest of equals. Returns whether they differed. Collective.
  // Throws Error(kCorrupt) for an r that arrives damaged.
  bool align(Group& group, uint64_t rounds);

 private:
  size_t write(const FrameHeader& expected, std::span<const float> mine);
  void read(const FrameHeader& expected, size_t size, FaultLog& faults);

  const size_t number_;  // of the stream
  const uint64_t seed_;
  const uint32_t generation_;
  CodedStream stream_;                    // in the store
  const Reference* reference_ = nullptr;  // its memory; null: values travel as they are
  AlignedVector<float> taken_;
  std::vector<std::byte> frame_;  // the longest that is possible
  uint64_t payload_bytes_ = 0;
};

}  // namespace thinwire
