// BodyDecoder: reads values that were sent in full, then streams (u32 size, payload).
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/body_decoder.h"

#include <string>

#include "core/bytes.h"
#include "kernel/vector_moments.h"
#include "pipeline/kept_positions.h"

namespace thinwire {

BodyDecoder::BodyDecoder(const BoundaryPlan& plan) : plan_(plan), decoders_(plan.spec.samples) {
  if (!plan.estimates || !plan.estimates->first) return;
  const StreamSpec sample = single_tensor({.name = plan.spec.name, .shape = {plan.sample_count}});
  full_decoder_ = plan.estimates->first->make_decoder(sample);
  full_size_ = plan.estimates->first->max_encoded_size(sample);
}

const Decoder& BodyDecoder::decoder(size_t samples) {
  auto& made = decoders_[samples - 1];
  if (!made) made = plan_.codec->make_decoder(plan_.stream(samples));
  return *made;
}

void BodyDecoder::change_codec() {
  for (auto& made : decoders_) made.reset();
}

// Calls take(decoder, payload, first value, number of values) for each stream.
template <typename Take>
Status BodyDecoder::each_stream(std::span<const std::byte> streams, size_t coded,
                                const Take& take) {
  if (coded == 0) return Status::ok();
  ByteReader reader(streams);
  const size_t samples = plan_.stream_samples(coded);
  const size_t count = samples * plan_.sample_count;
  for (size_t begin = 0; begin < coded * plan_.sample_count; begin += count) {
    const auto payload = reader.take(reader.get<uint32_t>());
    if (!reader.ok())
      return Status::fail(ErrorCode::kBadLength, plan_.origin() + "a stream is cut short");
    if (Status status = take(decoder(samples), payload, begin, count); !status)
      return Status::fail(status.code(), plan_.origin() + status.message());
  }
  if (reader.remaining() > 0)
    return Status::fail(ErrorCode::kBadLength, plan_.origin() + "bytes after the last stream");
  return Status::ok();
}

Status BodyDecoder::add(std::span<const std::byte> body, size_t coded, std::span<float> values) {
  const size_t full = values.size() / plan_.sample_count - coded;
  const size_t full_bytes = full * full_size_;
  if (body.size() < full_bytes || (coded == 0 && body.size() != full_bytes))
    return Status::fail(ErrorCode::kBadLength, plan_.origin() + "not the values of first visits");
  const size_t border = coded * plan_.sample_count;
  if (full > 0)
    if (Status status =
            full_decoder_->decode_add(body.first(full_bytes), 1.0f, values.subspan(border));
        !status)
      return Status::fail(status.code(), plan_.origin() + status.message());
  Status status = each_stream(
      body.subspan(full_bytes), coded,
      [&](const Decoder& from, std::span<const std::byte> payload, size_t begin, size_t count) {
        return from.decode_add(payload, 1.0f, values.subspan(begin, count));
      });
  if (status.is_ok() && !kernel::moments(values).finite)
    return Status::fail(ErrorCode::kCorrupt, plan_.origin() + "what arrives is not finite");
  return status;
}

Status BodyDecoder::note(std::span<const std::byte> body, size_t samples, const Visit& visit,
                         KeptPositions& positions) {
  std::vector<uint32_t>& noted = positions.note(visit);
  Status status = each_stream(
      body, samples,
      [&](const Decoder& from, std::span<const std::byte> payload, size_t begin, size_t) {
        return from.visit(payload, [&](std::span<const uint32_t> kept, std::span<const float>) {
          for (const uint32_t position : kept)
            noted.push_back(static_cast<uint32_t>(begin) + position);
        });
      });
  if (!status) positions.forget(visit);
  return status;
}

}  // namespace thinwire
