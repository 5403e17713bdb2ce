// Fuzzes decoders: any bytes decode to finite values or to a clean error, whatever the codec.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fuzz/target.h"

using namespace thinwire;

std::vector<std::vector<uint8_t>> fuzz_seeds() { return fuzz::payload_seeds(); }

namespace {

// Visiting a sparse payload stays in the stream, ascends, and ends as decoding does.
void check_visit(const fuzz::Subject& subject, const Decoder& decoder,
                 std::span<const std::byte> payload, const Status& decoded) {
  if (!subject.named.codec->info().sparse) return;
  size_t next = 0;
  const Status status =
      decoder.visit(payload, [&](std::span<const uint32_t> positions, std::span<const float>) {
        for (const uint32_t position : positions) {
          if (position < next || position >= subject.stream.count())
            fuzz::bug(subject.named.canonical + ": visited a wrong position");
          next = position + size_t{1};
        }
      });
  if (status.code() != decoded.code())
    fuzz::bug(subject.named.canonical + ": visiting and decoding end differently");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < fuzz::kSubjectBytes) return 0;
  const fuzz::Subject& subject = fuzz::subject_of(data[0], data[1]);
  const auto payload = std::as_bytes(std::span(data, size)).subspan(fuzz::kSubjectBytes);
  std::vector<float> out(subject.stream.count(), 0.0f);
  const auto decoder = subject.named.codec->make_decoder(subject.stream);
  const Status status = decoder->decode_add(payload, 1.0f, out);
  check_visit(subject, *decoder, payload, status);
  if (!status) {
    if (status.message().empty()) fuzz::bug(subject.named.canonical + ": an error without words");
    return 0;
  }
  for (float value : out)
    if (!std::isfinite(value)) fuzz::bug(subject.named.canonical + ": decoded a non-finite value");
  return 0;
}
