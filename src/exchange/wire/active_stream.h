// ActiveStream: a stream in a step: its tensors' values, memory, encoder, and the step's counters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device_work.h"
#include "exchange/layout/plan.h"
#include "exchange/state/shared_state.h"
#include "exchange/step/step_context.h"
#include "exchange/wire/coding_terms.h"
#include "exchange/wire/device_parts.h"
#include "exchange/wire/frames.h"
#include "exchange/wire/stream_meter.h"
#include "exchange/wire/stream_values.h"
#include "stream/coded_stream.h"
#include "thinwire/codec.h"
#include "thinwire/exchange.h"
#include "thinwire/feedback.h"
#include "thinwire/store.h"

namespace thinwire {

// The encoder and decoder for pieces of one length of one stream. Random draws depend on the
// stream's name.
struct Coder {
  size_t room = 0;  // bytes of a frame
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<const Decoder> decoder;
};

class CriticalRegime;
class GlobalThreshold;
class Contributions;
class RememberedRow;
class OwnerMemory;
class VectorRule;

// A step begins with one of three functions and ends with end:
//   prepare         the whole signal in one piece; then write_frame. Where ranks
//                   agree on what they encode: offer and adopt for every round, then encode_agreed
//   prepare_parts   the signal is formed part by part when it is asked for; then write_frame,
//                   add_own, add_own_coded
//   prepare_apart   signal and mean lie in the tensors; then write_frame, begin_mean, add_to_mean.
//                   There is no result()
// Not shared between threads.
class ActiveStream {
 public:
  // Opens "<stream>/feedback" and "<stream>/encoder" in `store`. Plain streams have fp32, and
  // nothing to remember but the momentum that the memory of the others is: "<tensor>/feedback".
  // With `work` its values are in a device's memory, in prepare_apart, write_frame, begin_mean,
  // add_to_mean and end; or in prepare or prepare_parts, write_frame, add_own, add_own_coded,
  // take_mean_part, take_own_part and end. The other functions of a step are not called then.
  // REQUIRES then: lack_of_device_form is empty, and no rule over whole vectors.
  ActiveStream(const PlannedStream& planned, size_t index, const CodingTerms& terms,
               const ExchangeOptions& options, Store& store, SharedWork work = nullptr);

  void add_shared_sums(std::vector<SharedSum>& sums);

  // Between two steps: the codec of `terms` from now on. The memory stays, to the bit.
  void change_codec(const CodingTerms& terms);

  // Between two steps: of each of its tensors, from the next step on.
  void set_momentum(std::span<const Momentum> of_tensors) {
    coded_.memory().set_momentum(of_tensors);
  }

  size_t index() const noexcept { return index_; }
  const StreamSpec& spec() const noexcept { return coded_.spec(); }
  const std::vector<size_t>& tensors() const noexcept { return values_->tensors(); }
  size_t first() const noexcept { return first_; }  // as PlannedStream has it
  std::optional<size_t> owner() const noexcept { return owner_; }
  const Codec& codec() const noexcept { return coded_.codec(); }
  // The same for values in the processor's memory, wherever the stream's own are: for sums at
  // owners.
  const Codec& processors_codec() const noexcept {
    return work_ != nullptr ? *processors_codec_ : codec();
  }
  // With every option spelt out.
  const std::string& codec_text() const noexcept { return codec_text_; }
  bool on_device() const noexcept { return work_ != nullptr; }

  // Does on the device what two steps do, with values of its own, and leaves no trace: what these
  // have no room for, or what does not compile of theirs, is thrown here. REQUIRES: on_device,
  // between two steps.
  void rehearse();
  // Why not, in an exchange that has a device.
  const std::string& why_staged() const noexcept { return why_staged_; }
  void set_why_staged(std::string why) { why_staged_ = std::move(why); }
  bool is_plain() const noexcept { return plain_; }         // fp32, owing nothing
  Encoder& encoder() noexcept { return coded_.encoder(); }  // of the whole stream
  const Decoder& decoder() const noexcept { return coded_.decoder(); }

  // Whether its memory keeps what a message lacked.
  bool keeps_rest() const noexcept { return coded_.keeps_rest(); }

  // What this rank, as a present or former owner of a part of the stream, still owes; prepare adds
  // what of it lies outside its shard to the gradient, until a step counts. Null: nothing.
  void set_owed(OwnerMemory* owed) noexcept { owed_ = owed; }

  // Between two steps: the stream's own memory takes over what of `owed` lies outside the shard, if
  // it takes debts over.
  void take_strays(OwnerMemory& owed);

  // The threshold that this stream has together with others; null: the codec finds its own.
  void set_threshold(GlobalThreshold* threshold) noexcept { threshold_ = threshold; }

  // What a rule remembers of the last step that counted, of the whole stream; empty if it remembers
  // nothing. copy_remembered copies it, and remember_own forms that of this step where the rule
  // does so itself.
  std::span<const float> remembered_values() const noexcept;
  void copy_remembered(std::span<float> to) const;
  void remember_own(const Contributions& of_all);

  // What decides whether it is in a critical regime, from its means; null: it always is.
  void set_regime(CriticalRegime* regime) noexcept { regime_ = regime; }
  bool has_regime() const noexcept { return regime_ != nullptr; }
  bool is_critical() const noexcept;

  // The number of values that the codec should keep; 0 if it has no target.
  size_t target() const { return plain_ ? 0 : codec().target(spec()); }

  // Forms this step's signal from the open tensors, once a step. That of a rank that sits out is
  // zeros, which no memory or encoder is shown; it is only asked to offer, adopt and encode what
  // ranks agree on.
  void prepare(StepContext& context);
  bool finite() const noexcept { return sits_out_ || coded_.finite(); }

  // The same, but where the memory allows it each part is formed when it is written or added, while
  // it is in cache and those before it are on their way. Then every value must be, once, and
  // finite() speaks of the parts formed so far.
  void prepare_parts(StepContext& context);

  // The same for exchanges that put the mean together with begin_mean and add_to_mean, where a
  // stream of several tensors need not be one piece of memory: formed from the tensors where they
  // lie, which saves two copies of all values, if memory and codec allow.
  void prepare_apart(StepContext& context);

  // Makes the mean zero; adds weight x the frame at the start of `bytes` to it, as add_frame does.
  void begin_mean(StepContext& context);
  FrameOutcome add_to_mean(StepContext& context, const FrameHeader& expected,
                           std::span<const std::byte> bytes, float weight);

  // This step's signal until the last value is encoded, and after prepare or prepare_parts the place
  // where the mean goes; they may be the same memory.
  std::span<const float> signal() const noexcept { return signal_; }
  std::span<float> result() noexcept {
    assert(!apart_);
    return result_;
  }

  // Writes values [begin, begin + count) as a frame of this rank to the start of `out`; returns its
  // size. A signal, or part, that is not finite gives a flagged header alone.
  size_t write_frame(StepContext& context, Encoder& encoder, size_t begin, size_t count,
                     std::span<std::byte> out);

  // Adds values [begin, begin + sum.size()) to `sum` as they are, for what stays on this rank;
  // nothing of them is left for the next step. False when the signal is not finite.
  bool add_own(StepContext& context, size_t begin, std::span<float> sum);

  // The same by way of the codec, so that they count as those of other ranks do. `room` holds a
  // payload of as many values.
  bool add_own_coded(StepContext& context, const Coder& coder, size_t begin,
                     std::span<std::byte> room, std::span<float> sum);

  // Of a stream in a device's memory, before the first step: the part that add_own adds.
  void set_own_part(size_t begin, size_t count);

  // Puts part [begin, begin + count) of the mean into its place in result(): from the frame of
  // another rank that `expected` describes, or from a payload of this rank's own, unless there is
  // no mean. On a device all parts are put there with the last.
  FrameOutcome take_mean_part(StepContext& context, const FrameHeader& expected,
                              const Decoder& decoder, std::span<const std::byte> bytes);
  void take_own_part(StepContext& context, size_t begin, size_t count, const Decoder& decoder,
                     std::span<const std::byte> payload, bool is_there);

  // This rank's part for a round of the codec, and what all ranks' parts came to, which may be bad.
  // Values of a plain stream are a round of their own, whose mean is the result.
  // REQUIRES: the signal is finite.
  size_t offer(StepContext& context, size_t round, std::span<std::byte> out);
  Status adopt(size_t round, std::span<const std::byte> combined);

  // After the last round: encodes what was agreed on to the start of `scratch`, and decodes it into
  // result(). Nothing to do for plain streams. REQUIRES: the signal is finite; scratch has room for
  // the codec's max_encoded_size.
  void encode_agreed(StepContext& context, std::span<std::byte> scratch);

  // For exchanges that treat each kept value by itself: encodes the whole stream to the start of
  // `scratch` and returns the payload. What it leaves lies in rest(), empty where nothing is
  // remembered; the caller adds there what it does not send of the payload, then says how many
  // values those were. REQUIRES: the signal is finite.
  std::span<const std::byte> begin_kept(StepContext& context, std::span<std::byte> scratch);
  std::span<float> rest() noexcept { return coded_.rest(0, spec().count()); }
  void end_kept(size_t withheld);

  // Counts what left without a frame: everything, as it is.
  void sent_unframed();

  // The mean goes to the tensors, before the step is known to count. For exchanges that pass it on;
  // end does it otherwise. REQUIRES: a memory that does not follow the mean.
  void give_result(StepContext& context);

  // The step counts, or never happened; a mean that counts goes to the tensors.
  void end(StepContext& context, bool skipped);

  // For exchanges that make frames of its payload, or of a mean, themselves: they count those here.
  StreamMeter& meter() noexcept { return meter_; }
  const StreamCounters& counters() const noexcept { return meter_.counters(); }

 private:
  bool open(const StepContext& context);
  void join(StepContext& context);
  void prepare_device_parts(StepContext& context);
  void count_device_rest();
  DeviceParts& device_parts();
  size_t copy_device_part(size_t begin, size_t count, std::span<std::byte> out);
  FrameOutcome take_device_part(StepContext& context, const FrameHeader& expected,
                                std::span<const std::byte> bytes);
  void end_device_part(StepContext& context, bool is_last);
  void apply_factor(const StepContext& context, std::span<float> values) const;
  void form_whole(StepContext& context);
  void form_from_places(StepContext& context);
  bool may_lie_apart() const;
  void show_regime(StepContext& context);
  Signal part(StepContext& context, size_t begin, size_t count);
  Signal whole();
  void examine(StepContext& context, const Signal& signal, std::span<const float> gradient);
  void note_fault(StepContext& context) const;
  Call call_for(const StepContext& context, const Signal& part);
  size_t encode(const StepContext& context, Encoder& encoder, const Signal& part, size_t begin,
                std::span<std::byte> out);
  void measure_left(size_t begin, size_t count);

  SharedWork work_;  // null: values are in the processor's memory
  CodedStream coded_;
  std::shared_ptr<const Codec> processors_codec_;  // of a stream in a device's memory
  std::unique_ptr<DeviceParts> device_parts_;      // of methods that send part by part
  std::unique_ptr<StreamValues> values_;
  bool plain_;
  size_t first_;
  std::optional<size_t> owner_;
  size_t index_;
  std::function<void(const StreamSpec&, const Signal&, const Call&)> observe_;  // may be empty
  OwnerMemory* owed_ = nullptr;
  const VectorRule* rule_ = nullptr;     // the rule that combines, if it is one over whole vectors
  RememberedRow* remembered_ = nullptr;  // what it remembers from step to step; null: nothing
  GlobalThreshold* threshold_ = nullptr;
  CriticalRegime* regime_ = nullptr;
  std::vector<std::span<const float>> places_;  // of the tensors, for a signal formed apart

  bool prepared_ = false;
  bool result_is_in_tensors_ = false;
  bool sits_out_ = false;          // this rank, in this step
  bool agreed_encoded_ = false;    // the encoder has what all ranks agreed on
  bool in_parts_ = false;          // the signal is formed when a part of it is asked for
  bool apart_ = false;             // signal and mean are of the tensors where they lie
  std::span<const float> signal_;  // unless in parts
  std::span<float> result_;        // unless apart
  StreamMeter meter_;
  std::string codec_text_;
  std::string why_staged_;
};

// The streams of a plan, by index; those of other sections too.
using Streams = std::vector<std::unique_ptr<ActiveStream>>;

}  // namespace thinwire
