// One worker's parameters to others, as a frame: as they are, or what changed since the last time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "exchange/engine/verdict.h"
#include "thinwire/codec.h"
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

// With a lossless codec the receivers get the sender's bits. With any other they all keep r, at first
// the start, and
//   frame = encode(x - r),   r <- r + decode(frame)
// on the sender too: r is what everybody takes for x, with the same bits. What a frame does not carry of
// x is in the next difference, whoever sends that. 8 bytes per value besides the frame's, 12 if lossy.
//
// A round is send, then commit or rollback.
class WeightBroadcast {
 public:
  // Keeps r and the encoder's state in `store` as "sync/<name>/..." and calls itself stream number
  // `stream` in frames. `options` give codec, seed and generation.
  WeightBroadcast(Store& store, const std::string& name, size_t stream,
                  const std::vector<TensorSpec>& tensors, std::span<const float> start,
                  const SynchroniserOptions& options);

  // Moves the frame of rank `owner` along `route`; `mine` are its values there, and empty elsewhere.
  // What is wrong with a frame goes to `faults`. Throws Error(kCorrupt) for an impossible length.
  void send(uint64_t round, int owner, std::span<const float> mine, std::span<const Hop> route,
            FaultLog& faults);

  // What all who took part in send hold until commit, the same bits. REQUIRES: no fault on any of them.
  std::span<const float> weights() const noexcept { return next_; }
  const std::string& name() const noexcept { return spec_.name; }
  uint64_t payload_bytes() const noexcept { return payload_bytes_; }  // of the last frame

  // The same after commit, until the next send.
  std::span<const float> taken() const noexcept;

  void commit();
  void rollback();

  // XXH3 of r: the same wherever frames of this object go.
  uint64_t reference_checksum() const;

 private:
  class Reference;

  size_t write(const FrameHeader& header, std::span<const float> mine);
  void read(const FrameHeader& expected, size_t size, FaultLog& faults);

  const StreamSpec spec_;
  const size_t stream_;
  const uint64_t seed_;
  const uint32_t generation_;
  std::shared_ptr<const Codec> codec_;
  std::unique_ptr<const Decoder> decoder_;
  Encoder* encoder_ = nullptr;      // in the store
  Reference* reference_ = nullptr;  // in the store; null: values travel as they are
  AlignedVector<float> difference_;
  AlignedVector<float> next_;
  std::vector<std::byte> frame_;  // the longest that is possible
  uint64_t payload_bytes_ = 0;
};

}  // namespace thinwire
