// StreamMeter: counts what a stream sends in a step, and the norms of what it is given and keeps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>

#include "thinwire/codec.h"
#include "thinwire/frame.h"
#include "thinwire/step_report.h"

namespace thinwire {

class StreamMeter {
 public:
  // Norms cost a pass each; without them nobody calls add_gradient and add_rest.
  explicit StreamMeter(bool norms) : norms_(norms) {}
  bool norms() const noexcept { return norms_; }

  // Of a stream with so many values, which has sent nothing.
  void reset(size_t values) {
    counters_ = {.values = values};
    gradient_square_ = 0;
    rest_square_ = 0;
  }

  void add_kept(const Encoded& encoded) noexcept {
    counters_.kept += encoded.kept;
    counters_.target += encoded.target;
  }
  void take_back(size_t values) noexcept { counters_.kept -= values; }
  void add_reduced(size_t values) noexcept { counters_.reduced += values; }
  void add_dense_frame() noexcept { ++counters_.dense_frames; }

  // Bytes that leave without a header, and in a frame with one.
  void add_unframed(size_t payload) noexcept { add_bytes(payload, payload); }
  void add_frame(size_t payload) noexcept { add_bytes(payload, kFrameHeaderSize + payload); }
  void add_flagged_frame() noexcept { add_bytes(0, kFrameHeaderSize); }

  // Sums of squares, of all values or of a part.
  void add_gradient(double square_sum) {
    gradient_square_ += square_sum;
    counters_.gradient_norm = std::sqrt(gradient_square_);
  }
  void add_rest(double square_sum) {
    rest_square_ += square_sum;
    counters_.rest_norm = std::sqrt(rest_square_);
  }

  const StreamCounters& counters() const noexcept { return counters_; }

 private:
  void add_bytes(size_t payload, size_t frame) noexcept {
    counters_.payload_bytes += payload;
    counters_.frame_bytes += frame;
  }

  bool norms_;
  double gradient_square_ = 0, rest_square_ = 0;
  StreamCounters counters_;
};

}  // namespace thinwire
