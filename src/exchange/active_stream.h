// A stream at work: its tensors' values, its memory, its encoder, and what one step made of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exchange/plan.h"
#include "exchange/step_context.h"
#include "exchange/terms.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/feedback.h"
#include "thinwire/store.h"

namespace thinwire {

// A step is prepare, write_frame or write_payload for every part, then end. Not shared between
// threads.
class ActiveStream {
 public:
  // Opens "<stream>/feedback" and "<stream>/encoder" in `store`; plain streams have fp32 and
  // nothing to remember.
  ActiveStream(const PlannedStream& planned, size_t index, const Terms& terms,
               const ExchangeOptions& options, Store& store);

  size_t index() const noexcept { return index_; }
  const StreamSpec& spec() const noexcept { return spec_; }
  const std::vector<size_t>& tensors() const noexcept { return tensors_; }
  const Codec& codec() const noexcept { return *codec_; }
  Encoder& encoder() noexcept { return *encoder_; }  // of the whole stream

  // Forms this step's signal from the open tensors, once a step.
  void prepare(StepContext& context);
  bool finite() const noexcept { return finite_; }

  // This step's signal, and the place where the mean goes; they may be the same memory.
  std::span<const float> signal() const noexcept { return signal_.values; }
  std::span<float> result() noexcept { return result_; }

  // Writes values [begin, begin + count) as a frame of this rank to the start of `out`; returns its
  // size. A signal that is not finite gives a flagged header alone.
  size_t write_frame(const StepContext& context, Encoder& encoder, size_t begin, size_t count,
                     std::span<std::byte> out);

  // The same without the header, for what stays on this rank: the payload lies where it would.
  // REQUIRES: the signal is finite.
  size_t write_payload(const StepContext& context, Encoder& encoder, size_t begin, size_t count,
                       std::span<std::byte> out);

  // Counts what left without a frame: everything, as it is.
  void sent_unframed();

  // The step counts, or never happened; a mean that counts goes to the tensors.
  void end(StepContext& context, bool skipped);

  const StreamCounters& counters() const noexcept { return counters_; }

 private:
  void count(const Encoded& encoded, std::span<const float> rest);

  StreamSpec spec_;
  std::vector<size_t> tensors_;
  size_t index_;
  bool norms_;
  std::function<void(const StreamSpec&, const Signal&, const Call&)> observe_;  // may be empty
  std::shared_ptr<const Codec> codec_;
  std::unique_ptr<Feedback> own_feedback_;  // of plain streams
  std::unique_ptr<Encoder> own_encoder_;
  Feedback* feedback_;
  Encoder* encoder_;
  std::vector<float> joined_;  // the values of several tensors, one after another

  bool prepared_ = false;
  bool finite_ = true;
  Signal signal_;
  std::span<float> result_;
  double rest_square_ = 0;
  StreamCounters counters_;
};

// What became of a frame, and its size; 0 when there is no telling where it ends.
struct FrameOutcome {
  enum Kind : uint8_t { kAdded, kFlagged, kCorrupt } kind = kCorrupt;
  size_t size = 0;
};

// Adds weight x the frame at the start of `bytes` to `out`. Notes its sender's fault when it is not
// the frame of `expected` (but for flags and payload size) or does not decode.
FrameOutcome add_frame(StepContext& context, const FrameHeader& expected, const Decoder& decoder,
                       std::span<const std::byte> bytes, float weight, std::span<float> out);

}  // namespace thinwire
