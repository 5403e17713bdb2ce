// What a faulty rank does to its own messages, and an exchange by gather that it does it in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/rule_oracles.h"
#include "exchange/testing/sending_group.h"
#include "exchange/testing/tampering_group.h"
#include "thinwire/frame.h"

namespace thinwire::testing {

inline constexpr int kAccounts = 29002;  // tags of values are below
inline constexpr std::chrono::milliseconds kSilence{2500};

inline const std::vector<TensorSpec> kModel{{"a", {3}, TensorKind::kLinear},
                                            {"b", {40, 25}, TensorKind::kLinear},
                                            {"c", {17, 9}, TensorKind::kLinear}};

// Several buckets.
inline ExchangeOptions by_gather(const std::string& rule, const std::string& codec = "fp32") {
  return {.codec = codec,
          .method = "gather",
          .combine = rule,
          .grouping = Grouping::kTensor,
          .bucket_bytes = 700};
}

inline bool is_frame(int tag, std::span<const std::byte> message) {
  return tag < kAccounts && message.size() > 8;
}

// Changes header and payload of the first frame, and seals it again.
using Change = std::function<void(FrameHeader& header, std::span<std::byte> payload)>;
inline void change_frame(std::span<std::byte> message, const Change& change) {
  FrameHeader header = read_frame(message).value().header;
  const auto frame = message.first(kFrameHeaderSize + header.payload_size);
  change(header, frame.subspan(kFrameHeaderSize));
  seal_frame(header, frame);
}

// What a rank does to its own messages, and what becomes of it.
struct Misdeed {
  std::string name;
  LeftOutFor why;
  Censor censor;
  bool seen_by_all = true;  // or by f ranks at most, who might lie
};

inline std::vector<Misdeed> misdeeds() {
  const auto to_frames = [](const std::function<void(int to, std::span<std::byte>)>& change) {
    return [change](int to, int tag, std::span<std::byte> message) {
      if (is_frame(tag, message)) change(to, message);
      return true;
    };
  };
  using Bytes = std::span<std::byte>;
  return {
      {"a bit flips on the way", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { m.back() ^= std::byte{1}; })},
      {"of an earlier step", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { change_frame(m, [](FrameHeader& h, Bytes) { --h.step; }); })},
      {"of another stream", LeftOutFor::kCorruption,
       to_frames([](int, Bytes m) { change_frame(m, [](FrameHeader& h, Bytes) { ++h.stream; }); })},
      {"a bad payload with a good seal", LeftOutFor::kCorruption, to_frames([](int, Bytes m) {
         change_frame(m, [](FrameHeader&, Bytes payload) {
           std::fill(payload.begin(), payload.end(), std::byte{0xFF});  // NaN
         });
       })},
      {"other values to ranks of odd numbers", LeftOutFor::kEquivocation,
       to_frames([](int to, Bytes m) {
         change_frame(
             m, [&](FrameHeader&, Bytes payload) { payload[0] ^= static_cast<std::byte>(to % 2); });
       }),
       false},
      {"a damaged message to rank 0 alone", LeftOutFor::kCorruption, to_frames([](int to, Bytes m) {
         if (to == 0) m.back() ^= std::byte{1};
       }),
       false}};
}

// Rows of all ranks but those that are left out.
inline Rows rows_without(const std::vector<int>& out, int ranks, uint64_t step) {
  Rows rows;
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(out.begin(), out.end(), rank) != out.end()) continue;
    Row& row = rows.emplace_back();
    for (const Values& values : gradients(kModel, rank, step))
      row.insert(row.end(), values.begin(), values.end());
  }
  return rows;
}

}  // namespace thinwire::testing
