// Values in, frames out; frames in, values out; and the memory in between.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/active_stream.h"

#include <algorithm>
#include <cmath>

#include "exchange/memory_slot.h"

namespace thinwire {

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
    feedback_ = &open_memory<Feedback>(store, spec_.name + "/feedback", terms.feedback, [&] {
      return make_feedback(terms.feedback, spec_).value();
    });
    encoder_ = &open_memory<Encoder>(store, spec_.name + "/encoder", terms.codec_text,
                                     [&] { return codec_->make_encoder(spec_); });
  }
  if (tensors_.size() != 1) joined_.resize(spec_.count());
}

void ActiveStream::prepare(StepContext& context) {
  if (prepared_) return;
  prepared_ = true;
  counters_ = {.values = spec_.count()};
  rest_square_ = 0;
  if (tensors_.size() == 1) {
    result_ = context.tensors.values(tensors_.front());
  } else {
    result_ = joined_;
    auto to = joined_.begin();
    for (const size_t tensor : tensors_)
      to = std::copy_n(context.tensors.values(tensor).begin(),
                       context.tensors.values(tensor).size(), to);
  }
  signal_ = feedback_->prepare(result_, context.call);
  if (!signal_.moments) signal_.moments = measure(signal_.values);
  finite_ = signal_.moments->finite;
  if (!finite_) context.faults.add(ErrorCode::kNonFinite, index_, context.group.rank());
  if (finite_ && observe_) observe_(spec_, signal_, context.call);
  if (norms_) {
    const bool same = signal_.values.data() == result_.data();
    const Moments given = same ? *signal_.moments : measure(result_);
    counters_.gradient_norm = std::sqrt(given.square_sum);
  }
}

size_t ActiveStream::write_payload(const StepContext& context, Encoder& encoder, size_t begin,
                                   size_t count, std::span<std::byte> out) {
  const std::span<float> kept = feedback_->rest();
  const std::span<float> rest = kept.empty() ? kept : kept.subspan(begin, count);
  Signal part;
  part.values = signal_.values.subspan(begin, count);
  if (!signal_.fresh.empty()) part.fresh = signal_.fresh.subspan(begin, count);
  if (count == signal_.values.size()) part.moments = signal_.moments;
  Call call = context.call;
  call.offset = begin;
  const Encoded encoded = encoder.encode(part, call, out.subspan(kFrameHeaderSize), rest);
  this->count(encoded, rest);
  feedback_->sent(result_, begin, count);  // the mean does not lie there yet
  counters_.frame_bytes += kFrameHeaderSize + encoded.size;
  return kFrameHeaderSize + encoded.size;
}

size_t ActiveStream::write_frame(const StepContext& context, Encoder& encoder, size_t begin,
                                 size_t count, std::span<std::byte> out) {
  FrameHeader header = context.header(codec_->info().id, index_, count, context.rank());
  size_t size = kFrameHeaderSize;
  if (finite_) {
    size = write_payload(context, encoder, begin, count, out);
    header.payload_size = size - kFrameHeaderSize;
  } else {
    header.flags = kFrameNonFinite;
    counters_.frame_bytes += size;
  }
  seal_frame(header, out.first(size));
  return size;
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
  feedback_->receive(result_);
  feedback_->commit();
  if (tensors_.size() == 1) return;
  auto from = joined_.cbegin();
  for (const size_t tensor : tensors_) {
    const auto values = context.tensors.values(tensor);
    std::copy_n(from, values.size(), values.begin());
    from += static_cast<std::ptrdiff_t>(values.size());
  }
}

FrameOutcome add_frame(StepContext& context, const FrameHeader& expected, const Decoder& decoder,
                       std::span<const std::byte> bytes, float weight, std::span<float> out) {
  const auto corrupt = [&](size_t size) {
    context.faults.add(ErrorCode::kCorrupt, expected.stream, expected.sender);
    return FrameOutcome{.kind = FrameOutcome::kCorrupt, .size = size};
  };
  Result<Frame> read = read_frame(bytes);
  if (!read) return corrupt(0);
  const Frame& frame = read.value();
  const FrameHeader& header = frame.header;
  const size_t size = kFrameHeaderSize + frame.payload.size();
  if (header.codec != expected.codec || header.sender != expected.sender ||
      header.generation != expected.generation || header.stream != expected.stream ||
      header.step != expected.step || header.count != expected.count)
    return corrupt(size);
  if ((header.flags & kFrameNonFinite) != 0) return {.kind = FrameOutcome::kFlagged, .size = size};
  if (!decoder.decode_add(frame.payload, weight, out)) return corrupt(size);
  return {.kind = FrameOutcome::kAdded, .size = size};
}

}  // namespace thinwire
