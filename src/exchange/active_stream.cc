// Values in, frames out; frames in, values out; and the memory in between.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/active_stream.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/check.h"
#include "exchange/owner_memory.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"

namespace thinwire {

namespace {

// What a memory belongs to: a method, and tensors of these kinds and shapes.
std::string method_text(const std::string& method, const StreamSpec& spec) {
  std::string text = method + " for";
  for (const TensorSpec& tensor : spec.tensors) {
    text += " " + std::string(to_string(tensor.kind));
    for (const uint64_t extent : tensor.shape) text += " " + std::to_string(extent);
  }
  return text;
}

std::string name_of_method(const std::string& text) { return text.substr(0, text.find(" for")); }

}  // namespace

ActiveStream::ActiveStream(const PlannedStream& planned, size_t index, const Terms& terms,
                           const ExchangeOptions& options, Store& store)
    : spec_(planned.spec), tensors_(planned.tensors), index_(index), norms_(options.norms) {
  if (planned.plain) {
    codec_ = make_codec("fp32").value().codec;
    own_feedback_ = make_feedback("none", spec_).value();
    own_encoder_ = codec_->make_encoder(spec_);
    feedback_ = own_feedback_.get();
    encoder_ = own_encoder_.get();
  } else {
    codec_ = terms.codec;
    observe_ = options.observe;
    feedback_ = &open_feedback(terms, store);
    encoder_slot_ =
        &open_slot<Encoder>(store, spec_.name + "/encoder", method_text(terms.codec_text, spec_),
                            [&] { return codec_->make_encoder(spec_); });
    encoder_ = &encoder_slot_->object();
  }
}

// What was owed to other tensors is not dropped unseen.
Feedback& ActiveStream::open_feedback(const Terms& terms, Store& store) const {
  const std::string key = spec_.name + "/feedback";
  return open_slot<Feedback>(
             store, key, method_text(terms.feedback, spec_),
             [&] { return make_feedback(terms.feedback, spec_).value(); },
             [&](const std::string& before) {
               if (terms.feedback != "none" && name_of_method(before) == terms.feedback)
                 throw Error(ErrorCode::kMismatch,
                             "store: '" + key +
                                 "' is the memory of other tensors, and what it owes " +
                                 "them would be lost; Store::drop makes room for a new one");
             })
      .object();
}

void ActiveStream::change_codec(const Terms& terms) {
  if (encoder_slot_ == nullptr) return;  // plain
  codec_ = terms.codec;
  change_method(*encoder_slot_, method_text(terms.codec_text, spec_), codec_->make_encoder(spec_));
  encoder_ = &encoder_slot_->object();
}

bool ActiveStream::open() {
  if (prepared_) return false;
  prepared_ = true;
  in_parts_ = false;
  apart_ = false;
  finite_ = true;
  counters_ = {.values = spec_.count()};
  gradient_square_ = 0;
  rest_square_ = 0;
  return true;
}

// All values in one piece, which is the memory of the tensor if there is one.
void ActiveStream::join(StepContext& context) {
  if (tensors_.size() == 1) {
    result_ = context.tensors.values(tensors_.front());
  } else {
    joined_.resize(spec_.count());
    result_ = joined_;
    auto to = joined_.begin();
    for (const size_t tensor : tensors_)
      to = std::copy_n(context.tensors.values(tensor).begin(),
                       context.tensors.values(tensor).size(), to);
  }
  if (owed_ != nullptr) owed_->release_strays(result_);
}

void ActiveStream::prepare(StepContext& context) {
  if (!open()) return;
  join(context);
  form_whole(context);
}

// Observers want the whole.
void ActiveStream::prepare_parts(StepContext& context) {
  if (!open()) return;
  join(context);
  in_parts_ = !observe_ && feedback_->prepare_part({}, 0, context.call).has_value();
  if (!in_parts_) form_whole(context);
}

void ActiveStream::prepare_apart(StepContext& context) {
  if (!may_lie_apart()) return prepare(context);
  if (!open()) return;
  apart_ = true;
  form_from_tensors(context);
}

// Observers, methods that look at this step's own part, and what strays from owners want one piece.
bool ActiveStream::may_lie_apart() const {
  return tensors_.size() > 1 && feedback_->only_adds() && codec_->info().sparse &&
         !codec_->info().fresh && !observe_ && owed_ == nullptr;
}

void ActiveStream::form_from_tensors(StepContext& context) {
  Moments moments;
  size_t begin = 0;
  for (const size_t tensor : tensors_) {
    const std::span<const float> gradient = context.tensors.values(tensor);
    Signal part = feedback_->prepare_part(gradient, begin, context.call).value();
    if (!part.moments) part.moments = measure(part.values);
    examine(context, part, gradient);
    moments.abs_sum += part.moments->abs_sum;
    moments.square_sum += part.moments->square_sum;
    moments.abs_max = std::max(moments.abs_max, part.moments->abs_max);
    begin += gradient.size();
  }
  moments.finite = finite_;
  signal_ = {.values = feedback_->rest(), .fresh = {}, .moments = moments};
  result_ = {};
}

void ActiveStream::begin_mean(StepContext& context) {
  if (!apart_) return kernel::fill(result_, 0.0f);
  for (const size_t tensor : tensors_) kernel::fill(context.tensors.values(tensor), 0.0f);
}

FrameOutcome ActiveStream::add_to_mean(StepContext& context, const FrameHeader& expected,
                                       const Decoder& decoder, std::span<const std::byte> bytes,
                                       float weight) {
  if (!apart_) return add_frame(context, expected, decoder, bytes, weight, result_);
  return read_frame_with(context, expected, bytes, [&](std::span<const std::byte> payload) {
    Place place;
    const auto add = [&](std::span<const uint32_t> positions, std::span<const float> values) {
      add_apart(context, positions, values, weight, place);
    };
    return decoder.visit(payload, std::cref(add));  // a reference needs no allocation
  });
}

// Positions ascend, from one call of a frame to the next as well.
void ActiveStream::add_apart(StepContext& context, std::span<const uint32_t> positions,
                             std::span<const float> values, float weight, Place& place) const {
  std::span<float> mean = context.tensors.values(tensors_[place.tensor]);
  for (size_t i = 0; i < positions.size(); ++i) {
    while (positions[i] - place.begin >= mean.size()) {
      if (place.tensor + 1 == tensors_.size()) return;  // past the end: decoders never show that
      place.begin += mean.size();
      mean = context.tensors.values(tensors_[++place.tensor]);
    }
    mean[positions[i] - place.begin] += weight * values[i];
  }
}

void ActiveStream::form_whole(StepContext& context) {
  signal_ = feedback_->prepare(result_, context.call);
  if (!signal_.moments) signal_.moments = measure(signal_.values);
  examine(context, signal_, result_);
  if (finite_ && observe_) observe_(spec_, signal_, context.call);
}

// Finiteness, and the norm of what was given.
void ActiveStream::examine(StepContext& context, const Signal& signal,
                           std::span<const float> gradient) {
  if (!signal.moments->finite) {
    finite_ = false;
    context.faults.add(ErrorCode::kNonFinite, index_, context.group.rank());
  }
  if (!norms_) return;
  const bool same = signal.values.data() == gradient.data();
  gradient_square_ += (same ? *signal.moments : measure(gradient)).square_sum;
  counters_.gradient_norm = std::sqrt(gradient_square_);
}

Signal ActiveStream::part(StepContext& context, size_t begin, size_t count) {
  if (in_parts_) {
    const std::span<const float> gradient = result_.subspan(begin, count);
    Signal formed = feedback_->prepare_part(gradient, begin, context.call).value();
    if (!formed.moments) formed.moments = measure(formed.values);
    examine(context, formed, gradient);
    return formed;
  }
  Signal part;
  part.values = signal_.values.subspan(begin, count);
  if (!signal_.fresh.empty()) part.fresh = signal_.fresh.subspan(begin, count);
  if (count == signal_.values.size()) part.moments = signal_.moments;
  return part;
}

size_t ActiveStream::encode(const StepContext& context, Encoder& encoder, const Signal& part,
                            size_t begin, std::span<std::byte> out) {
  const Encoded encoded = code(context, encoder, part, begin, out.subspan(kFrameHeaderSize));
  this->count(encoded, rest_of(begin, part.values.size()));
  counters_.frame_bytes += kFrameHeaderSize + encoded.size;
  return kFrameHeaderSize + encoded.size;
}

Encoded ActiveStream::code(const StepContext& context, Encoder& encoder, const Signal& part,
                           size_t begin, std::span<std::byte> payload) {
  Call call = context.call;
  call.offset = begin;
  const size_t count = part.values.size();
  const Encoded encoded = encoder.encode(part, call, payload, rest_of(begin, count));
  feedback_->sent(result_, begin, count);  // the mean does not lie there yet
  return encoded;
}

std::span<float> ActiveStream::rest_of(size_t begin, size_t count) {
  const std::span<float> kept = feedback_->rest();
  return kept.empty() ? kept : kept.subspan(begin, count);
}

size_t ActiveStream::write_payload(StepContext& context, Encoder& encoder, size_t begin,
                                   size_t count, std::span<std::byte> out) {
  return encode(context, encoder, part(context, begin, count), begin, out);
}

size_t ActiveStream::write_frame(StepContext& context, Encoder& encoder, size_t begin, size_t count,
                                 std::span<std::byte> out) {
  FrameHeader header = context.header(codec_->info().id, index_, begin, count, context.rank());
  const Signal part = this->part(context, begin, count);
  size_t size = kFrameHeaderSize;
  if (finite_) {
    size = encode(context, encoder, part, begin, out);
    header.payload_size = size - kFrameHeaderSize;
  } else {
    header.flags = kFrameNonFinite;
    counters_.frame_bytes += size;
  }
  seal_frame(header, out.first(size));
  return size;
}

bool ActiveStream::add_own(StepContext& context, size_t begin, std::span<float> sum) {
  const Signal part = this->part(context, begin, sum.size());
  if (!finite_) return false;
  kernel::add_floats(std::as_bytes(part.values), 1.0f, sum);
  const std::span<float> rest = rest_of(begin, sum.size());
  std::fill(rest.begin(), rest.end(), 0.0f);
  feedback_->sent(result_, begin, sum.size());
  return true;
}

bool ActiveStream::add_own_vote(StepContext& context, const Coder& coder, size_t begin,
                                std::span<std::byte> room, std::span<float> sum) {
  const Signal part = this->part(context, begin, sum.size());
  if (!finite_) return false;
  const size_t size = code(context, *coder.encoder, part, begin, room).size;
  count({}, rest_of(begin, sum.size()));  // nothing left this rank
  coder.decoder->decode_add(room.first(size), 1.0f, sum).or_throw();
  return true;
}

size_t ActiveStream::offer(StepContext& context, size_t round, std::span<std::byte> out) {
  if (is_plain()) {
    const auto values = std::as_bytes(signal_.values);
    std::copy(values.begin(), values.end(), out.begin());
    sent_unframed();
    return values.size();
  }
  const size_t size = encoder_->offer(round, signal_, context.call, out);
  if (codec_->info().agreed == Agreed::kScale) return size;  // the payload is counted, and is sent
  counters_.payload_bytes += size;
  counters_.frame_bytes += size;
  return size;
}

Status ActiveStream::adopt(size_t round, std::span<const std::byte> combined) {
  if (!is_plain()) return encoder_->adopt(round, combined);
  const auto result = std::as_writable_bytes(result_);
  std::copy(combined.begin(), combined.end(), result.begin());
  return Status::ok();
}

// What travelled is counted already.
void ActiveStream::settle(StepContext& context, const Decoder& decoder,
                          std::span<std::byte> scratch) {
  if (is_plain()) return;
  size_t size = 0;
  {
    const Stopwatch watch(context.compress_seconds);
    Encoded encoded = code(context, *encoder_, part(context, 0, spec_.count()), 0, scratch);
    size = std::exchange(encoded.size, 0);
    count(encoded, feedback_->rest());
  }
  const Stopwatch watch(context.decompress_seconds);
  decoder.decode(scratch.first(size), result_).or_throw();
}

std::span<const std::byte> ActiveStream::begin_kept(StepContext& context,
                                                    std::span<std::byte> scratch) {
  const Encoded encoded = encoder_->encode(signal_, context.call, scratch, feedback_->rest());
  counters_.kept += encoded.kept;
  counters_.target += encoded.target;
  return scratch.first(encoded.size);
}

void ActiveStream::end_kept(size_t withheld) {
  counters_.kept -= withheld;
  count({}, feedback_->rest());
  feedback_->sent(result_, 0, spec_.count());  // the mean does not lie there yet
}

void ActiveStream::count_frame(size_t payload_size, bool dense) noexcept {
  counters_.payload_bytes += payload_size;
  counters_.frame_bytes += kFrameHeaderSize + payload_size;
  counters_.dense_frames += dense;
}

void ActiveStream::count(const Encoded& encoded, std::span<const float> rest) {
  counters_.kept += encoded.kept;
  counters_.target += encoded.target;
  counters_.payload_bytes += encoded.size;
  if (norms_ && !rest.empty()) {
    rest_square_ += measure(rest).square_sum;
    counters_.rest_norm = std::sqrt(rest_square_);
  }
}

void ActiveStream::count_mean(const Encoded& encoded) {
  count(encoded, {});
  counters_.frame_bytes += kFrameHeaderSize + encoded.size;
}

void ActiveStream::sent_unframed() {
  const std::span<float> rest = feedback_->rest();
  std::fill(rest.begin(), rest.end(), 0.0f);
  count({.size = 4 * spec_.count(), .kept = spec_.count()}, rest);
  feedback_->sent(result_, 0, spec_.count());
  counters_.frame_bytes = counters_.payload_bytes;
}

void ActiveStream::end(StepContext& context, bool skipped) {
  prepared_ = false;
  signal_ = {};
  if (skipped) {
    encoder_->rollback();
    feedback_->rollback();
    return;
  }
  encoder_->commit();
  if (!apart_) feedback_->receive(result_);
  feedback_->commit();
  if (apart_ || tensors_.size() == 1) return;
  auto from = joined_.cbegin();
  for (const size_t tensor : tensors_) {
    const auto values = context.tensors.values(tensor);
    std::copy_n(from, values.size(), values.begin());
    from += static_cast<std::ptrdiff_t>(values.size());
  }
}

}  // namespace thinwire
