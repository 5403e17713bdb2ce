// For tests: what each rank of an oracle sends, after the rounds of codecs whose ranks agree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "exchange/testing/oracle_ranks.h"

namespace thinwire::testing::oracle {

using Payloads = std::vector<std::vector<std::byte>>;  // by rank

// What the parts of all ranks come to: floats added or compared in rank order, or one rank's bytes.
inline std::vector<std::byte> combined(const Ranks& ranks, const Round& round,
                                       const Payloads& parts) {
  const auto present = ranks.participants();
  if (round.combine == Round::Combine::kFromRoot)
    return parts[present[ranks.step() % present.size()]];
  Values result(round.size / sizeof(float));
  for (size_t i = 0; i < result.size(); ++i)
    for (const size_t r : present) {
      float value;
      std::memcpy(&value, parts[r].data() + i * sizeof value, sizeof value);
      result[i] = r == present.front()                    ? value
                  : round.combine == Round::Combine::kMax ? std::max(result[i], value)
                                                          : result[i] + value;
    }
  if (round.combine == Round::Combine::kMean)
    for (float& value : result) value *= ranks.share();
  const auto bytes = std::as_bytes(std::span(result));
  return {bytes.begin(), bytes.end()};
}

inline void make_rounds(const Ranks& ranks, Stream& stream, const std::vector<Signal>& signals,
                        const std::vector<Round>& rounds) {
  const auto present = ranks.participants();
  for (size_t i = 0; i < rounds.size(); ++i) {
    const size_t root = present[ranks.step() % present.size()];
    Payloads parts(signals.size());
    for (size_t r = 0; r < signals.size(); ++r) {
      if (rounds[i].combine == Round::Combine::kFromRoot && r != root) continue;
      parts[r].resize(rounds[i].size);
      parts[r].resize(stream.encoders[r]->offer(i, signals[r], ranks.call(r), parts[r]));
    }
    const auto result = combined(ranks, rounds[i], parts);
    for (const auto& encoder : stream.encoders) EXPECT_TRUE(encoder->adopt(i, result).is_ok());
  }
}

inline std::vector<Round> rounds_of(const Ranks& ranks, const Stream& stream) {
  return stream.codec->rounds(stream.spec, ranks.step() % 2 == 1);
}

// After `rounds` if there are any; nothing from a rank that sits out, unless ranks agree on what
// they say.
inline Payloads payloads(Ranks& ranks, Stream& stream, const std::vector<Tensors>& given,
                         const std::vector<Round>& rounds = {}) {
  std::vector<Values> gradients;
  std::vector<Signal> signals;
  for (size_t r = 0; r < given.size(); ++r) gradients.push_back(ranks.weighed(stream, given, r));
  for (size_t r = 0; r < given.size(); ++r)
    signals.push_back(ranks.takes_part(r)
                          ? stream.feedbacks[r]->prepare(gradients[r], ranks.call(r))
                          : Signal{.values = gradients[r]});
  make_rounds(ranks, stream, signals, rounds);
  Payloads all;
  for (size_t r = 0; r < given.size(); ++r) {
    std::vector<std::byte> bytes(stream.codec->max_encoded_size(stream.spec));
    if (!ranks.takes_part(r)) {
      const bool says = !rounds.empty() && stream.codec->info().agreed != Agreed::kScale;
      bytes.resize(says ? stream.encoders[r]->encode(signals[r], ranks.call(r), bytes, {}).size
                        : 0);
    } else {
      bytes.resize(ranks.encode(stream, r, signals[r], bytes, stream.feedbacks[r]->rest()));
      stream.feedbacks[r]->sent(gradients[r], 0, gradients[r].size());
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

}  // namespace thinwire::testing::oracle
