// CodedStream: calls memory and encoder in the order that a step needs.
// SPDX-License-Identifier: Apache-2.0
#include "stream/coded_stream.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace thinwire {

CodedStream::CodedStream(StreamSpec spec, StreamCodec codec, Slot<Feedback> memory,
                         Slot<Encoder> encoder)
    : spec_(std::move(spec)),
      codec_(std::move(codec.codec)),
      memory_(std::move(memory)),
      encoder_(std::move(encoder)),
      decoder_(codec_->make_decoder(spec_)) {
  // A step that an exchange which ended left open never happened.
  memory_->object().rollback();
  encoder_->object().rollback();
}

CodedStream::CodedStream(const StreamSpec& spec, const StreamCodec& codec,
                         const std::string& memory)
    : CodedStream(
          spec, codec,
          std::make_shared<MemorySlot<Feedback>>(memory,
                                                 std::move(make_feedback(memory, spec).value())),
          std::make_shared<MemorySlot<Encoder>>(codec.text, codec.codec->make_encoder(spec))) {}

void CodedStream::change_codec(StreamCodec codec) {
  if (codec.text == encoder_->method()) return;
  change_method(*encoder_, codec.text, codec.codec->make_encoder(spec_));
  decoder_ = codec.codec->make_decoder(spec_);
  codec_ = std::move(codec.codec);
}

void CodedStream::open(std::span<const float> gradient, const Call& call) {
  used_ = true;
  in_parts_ = false;
  finite_ = true;
  found_ = false;
  gradient_ = gradient;
  call_ = call;
  // Methods may withhold some of the values that a sparse codec keeps (begin_kept), whatever it
  // loses.
  call_.lossless = codec_->info().lossless && !codec_->info().sparse;
  signal_ = {};
}

Signal CodedStream::examined(Signal signal) {
  if (!signal.moments) signal.moments = measure(signal.values);
  finite_ = finite_ && signal.moments->finite;
  return signal;
}

const Signal& CodedStream::form(std::span<const float> gradient, const Call& call) {
  open(gradient, call);
  signal_ = examined(memory().prepare(gradient, call_));
  return signal_;
}

// What such a memory prepares lies in rest().
const Signal& CodedStream::form_joined(std::span<const std::span<const float>> places,
                                       const Call& call) {
  open({}, call);
  Moments moments;
  size_t begin = 0;
  for (const std::span<const float> gradient : places) {
    const Signal part = examined(memory().prepare_part(gradient, begin, call_).value());
    moments.abs_sum += part.moments->abs_sum;
    moments.square_sum += part.moments->square_sum;
    moments.abs_max = std::max(moments.abs_max, part.moments->abs_max);
    begin += gradient.size();
  }
  moments.finite = finite_;
  signal_ = {.values = memory().rest(), .fresh = {}, .moments = moments};
  return signal_;
}

bool CodedStream::begin_parts(std::span<const float> gradient, const Call& call) {
  if (!memory().prepare_part({}, 0, call)) return false;
  open(gradient, call);
  in_parts_ = true;
  return true;
}

Signal CodedStream::part(size_t begin, size_t count) {
  if (in_parts_)
    return examined(memory().prepare_part(gradient_.subspan(begin, count), begin, call_).value());
  Signal part{.values = signal_.values.subspan(begin, count)};
  if (!signal_.fresh.empty()) part.fresh = signal_.fresh.subspan(begin, count);
  if (count == signal_.values.size()) part.moments = signal_.moments;
  return part;
}

Encoded CodedStream::write(Encoder& encoder, const Signal& part, size_t begin, const Call& call,
                           std::span<std::byte> out) {
  Call at = call;
  at.offset = begin;
  const size_t count = part.values.size();
  const Encoded encoded = encoder.encode(part, at, out, rest(begin, count));
  if (count == spec_.count()) find_positions(encoded, out.first(encoded.size));
  return encoded;
}

Encoded CodedStream::encode(Encoder& encoder, const Signal& part, size_t begin, const Call& call,
                            std::span<std::byte> out) {
  const Encoded encoded = write(encoder, part, begin, call, out);
  sent(begin, part.values.size());
  return encoded;
}

void CodedStream::find_positions(const Encoded& encoded, std::span<const std::byte> payload) {
  const size_t most = codec_->info().sparse ? memory().most_positions() : 0;
  if (most == 0 || encoded.kept > most) return;
  positions_.assign(encoded.positions.begin(), encoded.positions.end());
  found_ = true;
  if (!positions_.empty()) {
    THINWIRE_CHECK(positions_.size() == encoded.kept,
                   "an encoder listed other values than it kept");
    return;
  }
  const auto collect = [this](std::span<const uint32_t> some, std::span<const float> /*values*/) {
    positions_.insert(positions_.end(), some.begin(), some.end());
  };
  decoder_->visit(payload, collect).or_throw();  // of its own encoder
}

void CodedStream::keep_nothing(size_t begin, size_t count) {
  const std::span<float> left = rest(begin, count);
  std::fill(left.begin(), left.end(), 0.0f);
  sent(begin, count);
}

std::span<float> CodedStream::rest(size_t begin, size_t count) {
  const std::span<float> kept = memory().rest();
  return kept.empty() ? kept : kept.subspan(begin, count);
}

std::span<const float> CodedStream::left(size_t begin, size_t count) {
  const std::span<const float> kept = memory().left();
  return kept.empty() ? kept : kept.subspan(begin, count);
}

void CodedStream::sent(size_t begin, size_t count) {
  if (found_)
    memory().sent_at(gradient_, positions_);
  else
    memory().sent(gradient_, begin, count);
}

void CodedStream::receive(std::span<float> result) {
  used_ = true;
  memory().receive(result);
}

void CodedStream::commit() {
  if (!std::exchange(used_, false)) return;
  signal_ = {};
  encoder().commit();
  memory().commit();
}

void CodedStream::rollback() {
  if (!std::exchange(used_, false)) return;
  signal_ = {};
  encoder().rollback();
  memory().rollback();
}

}  // namespace thinwire
