// Fuzzes rounds from a root: any bytes are refused with an error, or agreed on, and then the
// payload decodes to finite values. In both cases rollback restores the encoder.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "fuzz/target.h"
#include "support/samples.h"

using namespace thinwire;

namespace {

struct Rounds {
  explicit Rounds(const fuzz::Subject& of, bool odd_step)
      : subject(of),
        values(samples::make_values(samples::Data::kNormal, of.stream.count())),
        call{.step = odd_step, .ranks = 2},
        all(of.named.codec->rounds(of.stream, odd_step)),
        encoder(of.named.codec->make_encoder(of.stream)) {}

  Signal signal() const { return {.values = values}; }

  // What this rank offers for a round.
  std::vector<std::byte> offer(size_t round) {
    std::vector<std::byte> bytes(all[round].size);
    bytes.resize(encoder->offer(round, signal(), call, bytes));
    return bytes;
  }

  std::vector<std::byte> encode() {
    std::vector<std::byte> payload(subject.named.codec->max_encoded_size(subject.stream));
    const Encoded encoded = encoder->encode(signal(), call, payload, {});
    if (encoded.size > payload.size() ||
        encoded.kept > subject.named.codec->max_kept(subject.stream))
      fuzz::bug(subject.named.canonical + ": more than it announced");
    payload.resize(encoded.size);
    return payload;
  }

  const fuzz::Subject& subject;
  std::vector<float> values;
  Call call;
  std::vector<Round> all;
  std::unique_ptr<Encoder> encoder;
};

bool is_from_root(const Round& round) { return round.combine == Round::Combine::kFromRoot; }

}  // namespace

// What roots send, also to codecs of other options: more than these allow.
std::vector<std::vector<uint8_t>> fuzz_seeds() {
  std::vector<std::vector<uint8_t>> seeds;
  std::vector<std::pair<size_t, std::vector<std::byte>>> offers;  // with the length of the stream
  const auto for_roots = [](const auto& body) {
    for (size_t i = 0; i < fuzz::subject_count(); ++i)
      for (const uint8_t step : {0, 1}) {
        Rounds root(fuzz::subject_of(static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)), step);
        for (size_t round = 0; round < root.all.size(); ++round)
          if (is_from_root(root.all[round])) body(i, step, root, round);
      }
  };
  for_roots([&](size_t, uint8_t, Rounds& root, size_t round) {
    offers.emplace_back(root.values.size(), root.offer(round));
  });
  for_roots([&](size_t i, uint8_t step, Rounds& root, size_t) {
    for (const auto& [count, bytes] : offers) {
      if (count != root.values.size()) continue;
      seeds.push_back({static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8), step});
      for (const std::byte byte : bytes) seeds.back().push_back(std::to_integer<uint8_t>(byte));
    }
  });
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= fuzz::kSubjectBytes) return 0;
  const bool odd_step = data[fuzz::kSubjectBytes] % 2 == 1;
  Rounds rank(fuzz::subject_of(data[0], data[1]), odd_step);
  const auto sent = std::as_bytes(std::span(data, size)).subspan(fuzz::kSubjectBytes + 1);
  const std::string& name = rank.subject.named.canonical;
  bool agreed = true;
  for (size_t round = 0; agreed && round < rank.all.size(); ++round) {
    const bool hostile = is_from_root(rank.all[round]);
    if (hostile && sent.size() > rank.all[round].size) return 0;  // an exchange refuses these
    const auto own = hostile ? std::vector<std::byte>() : rank.offer(round);
    const Status status = rank.encoder->adopt(round, hostile ? sent : std::span(own));
    if (!status && status.message().empty()) fuzz::bug(name + ": an error without words");
    if (!status && !hostile) fuzz::bug(name + ": refuses what it offered itself");
    agreed = status.is_ok();
  }
  if (agreed) {
    std::vector<float> out(rank.values.size());
    const auto decoder = rank.subject.named.codec->make_decoder(rank.subject.stream);
    if (!decoder->decode_add(rank.encode(), 1.0f, out)) fuzz::bug(name + ": own payload refused");
    for (const float value : out)
      if (!std::isfinite(value)) fuzz::bug(name + ": decoded a non-finite value");
  }
  rank.encoder->rollback();
  if (rank.encode() != Rounds(rank.subject, odd_step).encode())
    fuzz::bug(name + ": rolled back, it encodes otherwise than before");
  return 0;
}
