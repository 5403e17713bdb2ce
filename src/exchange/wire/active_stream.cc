// ActiveStream: encodes a stream's values into frames, and decodes received frames.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/wire/active_stream.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "exchange/rules/contributions.h"
#include "exchange/rules/vector_rule.h"
#include "exchange/state/critical_regime.h"
#include "exchange/state/global_threshold.h"
#include "exchange/state/owner_memory.h"
#include "exchange/state/remembered_row.h"
#include "exchange/state/stream_keys.h"
#include "exchange/step/stopwatch.h"
#include "exchange/wire/add_scattered.h"
#include "exchange/wire/open_stream.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"
#include "stream/memory_slot.h"

namespace thinwire {

ActiveStream::ActiveStream(const PlannedStream& planned, size_t index, const CodingTerms& terms,
                           const ExchangeOptions& options, Store& store, SharedWork work)
    : work_(std::move(work)),
      coded_(work_ != nullptr ? open_device_stream(planned, terms, store, work_)
                              : open_stream(planned, terms, store)),
      processors_codec_(work_ != nullptr ? terms.codec : nullptr),
      values_(make_stream_values(planned.tensors, planned.spec.count(), work_)),
      plain_(planned.plain),
      first_(planned.first),
      owner_(planned.owner),
      index_(index),
      meter_(options.norms),
      codec_text_(planned.plain ? "fp32" : terms.codec_text) {
  if (!plain_) observe_ = options.observe;
  if (terms.combine != nullptr) rule_ = terms.combine->over_vectors();  // null inside a group: sums
  if (rule_ == nullptr || rule_->remembers() == Remembers::kNothing) return;
  const size_t count = spec().count();
  remembered_ = &open_memory<RememberedRow>(
      store, remembered_key(spec().name),
      options.combine + " of " + std::to_string(count) + " values",
      [&] { return std::make_unique<RememberedRow>(count, rule_->first_remembered()); });
}

void ActiveStream::add_shared_sums(std::vector<SharedSum>& sums) {
  thinwire::add_shared_sums(feedback_key(spec().name), coded_.memory(), sums);
  thinwire::add_shared_sums(encoder_key(spec().name), coded_.encoder(), sums);
  if (regime_ != nullptr) thinwire::add_shared_sums(regime_key(spec().name), *regime_, sums);
  if (remembered_ != nullptr)
    thinwire::add_shared_sums(remembered_key(spec().name), *remembered_, sums);
}

std::span<const float> ActiveStream::remembered_values() const noexcept {
  return remembered_ == nullptr ? std::span<const float>() : remembered_->values();
}

void ActiveStream::copy_remembered(std::span<float> to) const {
  const auto values = remembered_values();
  std::copy(values.begin(), values.end(), to.begin());
}

void ActiveStream::remember_own(const Contributions& of_all) {
  if (remembered_ != nullptr && rule_->remembers() == Remembers::kOwn)
    of_all.next_remembered(remembered_->next());
}

bool ActiveStream::is_critical() const noexcept {
  return regime_ == nullptr || regime_->critical();
}

void ActiveStream::change_codec(const CodingTerms& terms) {
  if (plain_) return;
  coded_.change_codec({.codec = terms.codec, .text = encoder_text(terms, spec())});
  codec_text_ = terms.codec_text;
}

void ActiveStream::take_strays(OwnerMemory& owed) { owed.hand_strays_to(coded_.memory()); }

bool ActiveStream::open(const StepContext& context) {
  if (prepared_) return false;
  prepared_ = true;
  result_is_in_tensors_ = false;
  sits_out_ = context.sits_out();
  agreed_encoded_ = false;
  in_parts_ = false;
  apart_ = false;
  signal_ = {};
  meter_.reset(spec().count());
  return true;
}

// All values in one piece, as this rank gives them; those of a rank that sits out are the signal.
void ActiveStream::join(StepContext& context) {
  result_ = values_->join(context.tensors);
  apply_factor(context, result_);
  if (owed_ != nullptr && !sits_out_) values_->add_strays(*owed_, result_);
  values_->await();
  if (sits_out_) signal_ = result_;
}

// In place: zeros for a rank that gives nothing, else times the rank's factor.
void ActiveStream::apply_factor(const StepContext& context, std::span<float> values) const {
  if (sits_out_ || context.gives_zeros)
    values_->fill(values, 0.0f);
  else if (context.factor != 1)
    values_->scale(values, context.factor);
}

void ActiveStream::prepare(StepContext& context) {
  if (work_ != nullptr) return prepare_device_parts(context);
  if (!open(context)) return;
  join(context);
  if (!sits_out_) form_whole(context);
}

// Observers want the whole.
void ActiveStream::prepare_parts(StepContext& context) {
  if (work_ != nullptr) return prepare_device_parts(context);
  if (!open(context)) return;
  join(context);
  if (sits_out_) return;
  in_parts_ = !observe_ && coded_.begin_parts(result_, context.call);
  if (!in_parts_) form_whole(context);
}

// On a device the values are one piece all the same, which costs little there.
void ActiveStream::prepare_apart(StepContext& context) {
  if (!open(context)) return;
  const bool by_tensor = may_lie_apart();
  apart_ = by_tensor && work_ == nullptr && !sits_out_;
  if (!apart_) join(context);
  if (sits_out_) return;
  if (by_tensor)
    form_from_places(context);
  else
    form_whole(context);
}

// Observers, methods that look at this step's own part, and what strays from owners want one piece.
bool ActiveStream::may_lie_apart() const {
  const CodecInfo& info = codec().info();
  return tensors().size() > 1 && coded_.memory().only_adds() && info.sparse && !info.fresh &&
         !observe_ && owed_ == nullptr;
}

// Moments are added tensor by tensor wherever the values lie: codecs choose by them. The places are
// in the tensors, or on a device in the joined values.
void ActiveStream::form_from_places(StepContext& context) {
  places_.clear();
  size_t begin = 0;
  for (const size_t tensor : tensors()) {
    std::span<float> values = context.tensors.values(tensor);
    if (apart_)
      apply_factor(context, values);
    else
      values = result_.subspan(begin, values.size());
    places_.push_back(values);
    begin += values.size();
  }
  if (apart_) result_ = {};
  signal_ = coded_.form_joined(places_, context.call).values;
  note_fault(context);
  if (!meter_.norms()) return;
  for (const std::span<const float> gradient : places_)
    meter_.add_gradient(values_->square_sum(gradient));
}

void ActiveStream::begin_mean(StepContext& context) {
  if (!apart_) return values_->fill(result_, 0.0f);
  for (const size_t tensor : tensors()) values_->fill(context.tensors.values(tensor), 0.0f);
}

FrameOutcome ActiveStream::add_to_mean(StepContext& context, const FrameHeader& expected,
                                       std::span<const std::byte> bytes, float weight) {
  if (!apart_) return add_frame(context, expected, decoder(), bytes, weight, result_);
  return read_frame_with(context, expected, bytes, [&](std::span<const std::byte> payload) {
    AddScattered add(context.tensors, tensors(), weight);
    return decoder().visit(payload, std::ref(add));  // a reference needs no allocation
  });
}

FrameOutcome ActiveStream::take_mean_part(StepContext& context, const FrameHeader& expected,
                                          const Decoder& decoder,
                                          std::span<const std::byte> bytes) {
  if (device_parts_ != nullptr) return take_device_part(context, expected, bytes);
  const std::span<float> place = result_.subspan(expected.place, expected.count);
  kernel::fill(place, -0.0f);
  return add_frame(context, expected, decoder, bytes, 1.0f, place);
}

void ActiveStream::take_own_part(StepContext& context, size_t begin, size_t count,
                                 const Decoder& decoder, std::span<const std::byte> payload,
                                 bool is_there) {
  if (device_parts_ != nullptr)
    return end_device_part(
        context,
        device_parts_->take(begin, count, is_there ? payload : payload.first(0), context.rank()));
  const std::span<float> place = result_.subspan(begin, count);
  kernel::fill(place, -0.0f);
  if (is_there) decoder.decode_add(payload, 1.0f, place).or_throw();
}

void ActiveStream::form_whole(StepContext& context) {
  const Signal& signal = coded_.form(result_, context.call);
  signal_ = signal.values;
  examine(context, signal, result_);
  if (finite() && observe_) observe_(spec(), signal, context.call);
}

// Finiteness, and the norm of what was given.
void ActiveStream::examine(StepContext& context, const Signal& signal,
                           std::span<const float> gradient) {
  note_fault(context);
  if (!meter_.norms()) return;
  const bool same = signal.values.data() == gradient.data();
  meter_.add_gradient(same ? signal.moments->square_sum : values_->square_sum(gradient));
}

void ActiveStream::note_fault(StepContext& context) const {
  if (!finite()) context.faults.add(ErrorCode::kNonFinite, index_, context.group.rank());
}

Signal ActiveStream::part(StepContext& context, size_t begin, size_t count) {
  const Signal part = coded_.part(begin, count);
  if (in_parts_) examine(context, part, result_.subspan(begin, count));
  return part;
}

Call ActiveStream::call_for(const StepContext& context, const Signal& part) {
  Call call = context.call;
  if (threshold_ != nullptr)
    call.quota = threshold_->quota_for(part.values, target(), call, first());
  return call;
}

size_t ActiveStream::encode(const StepContext& context, Encoder& encoder, const Signal& part,
                            size_t begin, std::span<std::byte> out) {
  if (device_parts_ != nullptr) return copy_device_part(begin, part.values.size(), out);
  const Encoded encoded =
      coded_.encode(encoder, part, begin, call_for(context, part), out.subspan(kFrameHeaderSize));
  if (threshold_ != nullptr) threshold_->sent(encoded.kept);
  meter_.add_kept(encoded);
  meter_.add_frame(encoded.size);
  measure_left(begin, part.values.size());
  return kFrameHeaderSize + encoded.size;
}

size_t ActiveStream::write_frame(StepContext& context, Encoder& encoder, size_t begin, size_t count,
                                 std::span<std::byte> out) {
  FrameHeader header = context.header(codec().info().id, index_, begin, count, context.rank());
  const Signal part = this->part(context, begin, count);
  size_t size = kFrameHeaderSize;
  if (finite()) {
    size = encode(context, encoder, part, begin, out);
    header.payload_size = size - kFrameHeaderSize;
  } else {
    header.flags = kFrameNonFinite;
    meter_.add_flagged_frame();
  }
  seal_frame(header, out.first(size));
  return size;
}

bool ActiveStream::add_own(StepContext& context, size_t begin, std::span<float> sum) {
  const Signal part = this->part(context, begin, sum.size());
  if (!finite()) return false;
  if (device_parts_ != nullptr) {
    kernel::add_floats(std::as_bytes(device_parts_->own_values(begin, sum.size())), 1.0f, sum);
    coded_.sent(begin, sum.size());
    return true;
  }
  kernel::add_floats(std::as_bytes(part.values), 1.0f, sum);
  coded_.keep_nothing(begin, sum.size());
  return true;
}

bool ActiveStream::add_own_coded(StepContext& context, const Coder& coder, size_t begin,
                                 std::span<std::byte> room, std::span<float> sum) {
  const Signal part = this->part(context, begin, sum.size());
  if (!finite()) return false;
  if (device_parts_ != nullptr) {
    coded_.sent(begin, sum.size());
    coder.decoder->decode_add(device_parts_->payload(begin, sum.size()), 1.0f, sum).or_throw();
    return true;
  }
  const size_t size = coded_.encode(*coder.encoder, part, begin, context.call, room).size;
  coder.encoder->rollback();  // it serves other parts too, and remembers none
  measure_left(begin, sum.size());
  coder.decoder->decode_add(room.first(size), 1.0f, sum).or_throw();
  return true;
}

// After prepare.
Signal ActiveStream::whole() {
  return sits_out_ ? Signal{.values = signal_} : coded_.part(0, spec().count());
}

size_t ActiveStream::offer(StepContext& context, size_t round, std::span<std::byte> out) {
  if (is_plain()) {
    const auto values = std::as_bytes(signal_);
    std::copy(values.begin(), values.end(), out.begin());
    sent_unframed();
    return values.size();
  }
  const size_t size = encoder().offer(round, whole(), context.call, out);
  if (sits_out_) return size;
  if (codec().info().agreed == Agreed::kScale) return size;  // the payload is counted, and is sent
  meter_.add_unframed(size);
  return size;
}

Status ActiveStream::adopt(size_t round, std::span<const std::byte> combined) {
  if (!is_plain()) return encoder().adopt(round, combined);
  const auto result = std::as_writable_bytes(result_);
  std::copy(combined.begin(), combined.end(), result.begin());
  return Status::ok();
}

// What travelled is counted already.
void ActiveStream::encode_agreed(StepContext& context, std::span<std::byte> scratch) {
  if (is_plain()) return;
  size_t size = 0;
  {
    const Stopwatch watch(context.compress_seconds);
    agreed_encoded_ = true;
    if (sits_out_) {
      size = encoder().encode(whole(), context.call, scratch, {}).size;
    } else {
      const Encoded encoded = coded_.encode(encoder(), whole(), 0, context.call, scratch);
      size = encoded.size;
      meter_.add_kept(encoded);
      measure_left(0, spec().count());
    }
  }
  const Stopwatch watch(context.decompress_seconds);
  decoder().decode(scratch.first(size), result_).or_throw();
}

std::span<const std::byte> ActiveStream::begin_kept(StepContext& context,
                                                    std::span<std::byte> scratch) {
  const Signal signal = whole();
  const Encoded encoded = coded_.write(encoder(), signal, 0, call_for(context, signal), scratch);
  if (threshold_ != nullptr) threshold_->sent(encoded.kept);
  meter_.add_kept(encoded);
  return scratch.first(encoded.size);
}

void ActiveStream::end_kept(size_t withheld) {
  meter_.take_back(withheld);
  coded_.sent(0, spec().count());
  measure_left(0, spec().count());
}

void ActiveStream::measure_left(size_t begin, size_t count) {
  if (!meter_.norms()) return;
  const std::span<const float> left = coded_.left(begin, count);
  if (!left.empty()) meter_.add_rest(values_->square_sum(left));
}

void ActiveStream::sent_unframed() {
  if (sits_out_) return;
  coded_.keep_nothing(0, spec().count());
  meter_.add_kept({.kept = spec().count()});
  meter_.add_unframed(4 * spec().count());
  measure_left(0, spec().count());
}

void ActiveStream::end(StepContext& context, bool skipped) {
  signal_ = {};
  if (!prepared_) {  // too few ranks took part, or the step failed before its bucket began
    meter_.reset(spec().count());
    return;
  }
  if (!skipped) {
    give_result(context);
    if (regime_ != nullptr) show_regime(context);
  }
  prepared_ = false;
  if (sits_out_)
    agreed_encoded_ && !skipped ? encoder().commit() : encoder().rollback();
  else
    skipped || context.left_out ? coded_.rollback() : coded_.commit();
  if (remembered_ != nullptr && !skipped) remembered_->commit();
}

// What was delivered, in the order of the stream.
void ActiveStream::show_regime(StepContext& context) {
  const Stopwatch watch(context.decompress_seconds);
  if (!apart_) regime_->add(result_, 0);
  size_t begin = 0;
  for (size_t i = 0; apart_ && i < tensors().size(); ++i) {
    const std::span<const float> mean = context.tensors.values(tensors()[i]);
    regime_->add(mean, begin);
    begin += mean.size();
  }
  regime_->end_step();
}

void ActiveStream::give_result(StepContext& context) {
  if (!prepared_ || std::exchange(result_is_in_tensors_, true)) return;
  if (!sits_out_ && !apart_) coded_.receive(result_);
  count_device_rest();
  if (remembered_ != nullptr && rule_->remembers() == Remembers::kResult)  // not on a device
    std::copy(result_.begin(), result_.end(), remembered_->next().begin());
  if (!apart_) values_->give(context.tensors);
}

}  // namespace thinwire
