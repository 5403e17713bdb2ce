// Tests of boundary messages, byte for byte as in docs/wire-format.md.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/boundary_message.h"

#include <cmath>

#include "core/checksum.h"
#include "pipeline/testing/boundary_testing.h"

namespace thinwire::testing {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// The payload's head: history, ids, micro-batch, full.
Bytes head(uint64_t history, const Ids& ids, uint64_t batch, uint32_t micro_batch, uint32_t full) {
  Bytes all, bytes;
  for (const uint64_t id : ids) append(all, id);
  append(all, batch);
  append(bytes, history);
  append(bytes, checksum(all));
  append(bytes, micro_batch);
  append(bytes, full);
  return bytes;
}

Bytes payload_of(const Pair& pair) {
  const auto payload = read_frame(pair.bytes()).value().payload;
  return {payload.begin(), payload.end()};
}

TEST(BoundaryMessage, FirstVisitsThenStreamsOfTheOthers) {
  BoundarySpec spec = spec_of("fp32", "aqsgd:first=fp32");
  spec.sample_shape = {1};
  spec.samples = 3;
  spec.micro_batches = 2;
  spec.stream = 5;
  spec.sender = 2;
  spec.generation = 9;
  Pair pair(spec);
  pair.cross({1, 2}, {.step = 40, .micro_batch = 1, .ids = Ids{7, 8}});
  Bytes first = head(0, {7, 8}, 0, 1, 2);
  append(first, 1.0f);
  append(first, 2.0f);
  EXPECT_EQ(payload_of(pair), first);
  const FrameHeader header = read_frame(pair.bytes()).value().header;
  EXPECT_EQ(header.codec, 1);
  EXPECT_EQ(header.flags, 0);
  EXPECT_EQ(header.stream, 5u);
  EXPECT_EQ(header.sender, 2);
  EXPECT_EQ(header.generation, 9u);
  EXPECT_EQ(header.step, 40u);
  EXPECT_EQ(header.count, 2u);
  const uint64_t of_second = message_checksum(pair.bytes());
  pair.cross({4}, {.step = 40, .micro_batch = 0, .ids = Ids{1}});
  const uint64_t of_first = message_checksum(pair.bytes());
  pair.commit();

  uint64_t history = 0;
  for (const uint64_t sum : {of_first, of_second}) {  // in order of micro-batches
    Bytes both;
    append(both, history);
    append(both, sum);
    history = checksum(both);
  }
  pair.cross({1.5f, 10, 2.5f}, {.step = 41, .ids = Ids{7, 3, 8}});
  Bytes second = head(history, {7, 3, 8}, 0, 0, 1);
  append(second, 10.0f);
  for (int i = 0; i < 2; ++i) {
    append(second, uint32_t{4});
    append(second, 0.5f);
  }
  EXPECT_EQ(payload_of(pair), second);
}

TEST(BoundaryMessage, OneStreamOfABatch) {
  BoundarySpec spec = spec_of("fp16", "none", false);
  spec.sample_shape = {1};
  spec.samples = 2;
  Pair pair(spec);
  pair.cross({1, -2}, {.ids = Ids{7, 8}, .batch = 3});
  Bytes want = head(0, {7, 8}, 3, 0, 0);
  append(want, uint32_t{4});
  append(want, uint16_t{0x3c00});
  append(want, uint16_t{0xc000});
  EXPECT_EQ(payload_of(pair), want);
}

TEST(BoundaryMessage, NonFiniteIsAFlagAndNothingElse) {
  Pair pair(spec_of("int8", "ef"));
  EXPECT_FALSE(pair.send(Values(8 * kSample, HUGE_VALF), {.step = 3}).finite);
  const Frame frame = read_frame(pair.bytes()).value();
  EXPECT_EQ(pair.sent.size, kFrameHeaderSize);
  EXPECT_EQ(frame.header.flags, kFrameNonFinite);
  EXPECT_EQ(frame.header.step, 3u);
  EXPECT_EQ(frame.header.count, 8 * kSample);
}

}  // namespace
}  // namespace thinwire::testing
