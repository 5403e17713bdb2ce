// Tests of altered messages: an error, no trace in memories, and the right bytes still work.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "pipeline/testing/boundary_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using Bytes = std::vector<std::byte>;

// A pair that has seen samples 0 to 7, and a message of 4 of them and 4 new ones.
struct Hostile {
  explicit Hostile(const BoundarySpec& spec) : pair(spec), ids(numbers(4, 8)) {
    const Ids seen = numbers(0, 8);
    pair.step(activations(seen, 0), {.ids = seen});
    good = take();
    before = pair.receiver->save();
  }

  Bytes take() {
    pair.send(activations(ids, 1), visit());
    return {pair.bytes().begin(), pair.bytes().end()};
  }
  Visit visit() const { return {.step = 1, .ids = ids}; }

  // The bytes must not be read outside their own allocation: they are copied to one of their size.
  Status decode(const Bytes& bytes, const Visit& visit) {
    const Bytes exact(bytes);
    const Status status = pair.receiver->decode(exact, visit, out);
    if (!status) {
      EXPECT_THROW(pair.receiver->commit(), Error);
    }
    pair.receiver->rollback();
    return status;
  }
  Status decode(const Bytes& bytes) { return decode(bytes, visit()); }

  void expect_no_trace() {
    expect_same_arrays(pair.receiver->save(), before);
    ASSERT_TRUE(pair.receiver->decode(good, visit(), out).is_ok());
    pair.commit();
    expect_same_arrays(estimates(*pair.receiver), estimates(*pair.sender));
  }

  Pair pair;
  Ids ids;
  Bytes good;
  StateArrays before;
  Values out = Values(8 * kSample);
};

// With a header and checksum that are right.
Bytes resealed(Bytes bytes, FrameHeader header) {
  header.payload_size = bytes.size() - kFrameHeaderSize;
  seal_frame(header, bytes);
  return bytes;
}
Bytes resealed(Bytes bytes, const Hostile& of) {
  return resealed(std::move(bytes), read_frame(of.good).value().header);
}

class EveryMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryMemory, TruncatedLengthenedOrFlipped) {
  Hostile hostile(spec_of("topk:density=0.25", GetParam()));
  for (size_t size = 0; size < hostile.good.size(); ++size)
    EXPECT_FALSE(
        hostile.decode(Bytes(hostile.good.begin(), hostile.good.begin() + std::ptrdiff_t(size))));
  Bytes longer = hostile.good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(hostile.decode(longer).code(), ErrorCode::kBadLength);
  for (size_t i = 0; i < 8 * hostile.good.size(); ++i) {
    Bytes flipped = hostile.good;
    flipped[i / 8] ^= static_cast<std::byte>(1u << i % 8);
    EXPECT_FALSE(hostile.decode(flipped)) << "bit " << i;
  }
  hostile.expect_no_trace();
}

// Past the checksum: what decodes is finite, what does not leaves no trace.
TEST_P(EveryMemory, BodiesOfSomebodyElse) {
  for (const char* codec : {"topk:density=0.25", "uniform:bits=4,block=64", "int8", "fp32"}) {
    Hostile hostile(spec_of(codec, GetParam()));
    size_t refused = 0;
    for (size_t i = kFrameHeaderSize; i < hostile.good.size(); ++i)
      for (const unsigned mask : {0x01u, 0x80u, 0xffu}) {
        Bytes other = hostile.good;
        other[i] ^= static_cast<std::byte>(mask);
        const Status status = hostile.decode(resealed(other, hostile));
        if (i < kFrameHeaderSize + 24) {
          EXPECT_FALSE(status) << "the head, byte " << i;
        }
        refused += status ? 0 : 1;
        for (const float value : hostile.out) {
          ASSERT_TRUE(!status || std::isfinite(value));
        }
      }
    EXPECT_GT(refused, 24u * 3);
    for (size_t size = kFrameHeaderSize; size < hostile.good.size(); ++size)
      EXPECT_FALSE(hostile.decode(resealed(
          Bytes(hostile.good.begin(), hostile.good.begin() + std::ptrdiff_t(size)), hostile)));
    Bytes longer = hostile.good;
    longer.resize(longer.size() + 5);
    EXPECT_FALSE(hostile.decode(resealed(longer, hostile)));
    hostile.expect_no_trace();
  }
}

TEST_P(EveryMemory, MessagesOfOtherVisits) {
  Hostile hostile(spec_of("topk:density=0.25", GetParam()));
  const auto refused = [&](const Visit& visit, const char* what) {
    const Status status = hostile.decode(hostile.good, visit);
    EXPECT_EQ(status.code(), ErrorCode::kMismatch) << what;
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("from rank 0"), std::string::npos) << status.message();
  };
  Visit visit = hostile.visit();
  visit.step = 2;
  refused(visit, "step");
  const Ids others = numbers(3, 8);
  visit = hostile.visit();
  visit.ids = others;
  refused(visit, "ids");
  visit = hostile.visit();
  visit.batch = 5;
  refused(visit, "ids");
  hostile.expect_no_trace();
}

INSTANTIATE_TEST_SUITE_P(Memories, EveryMemory,
                         ::testing::Values("none", "ef", "ef21", "aqsgd", "aqsgd:cache=fp16"));

TEST(BoundaryHostile, HeadersOfOthers) {
  Hostile hostile(spec_of("int8", "aqsgd"));
  const FrameHeader right = read_frame(hostile.good).value().header;
  const auto refused = [&](const FrameHeader& header, ErrorCode code) {
    EXPECT_EQ(hostile.decode(resealed(hostile.good, header)).code(), code);
  };
  for (const int field : {0, 1, 2, 3, 4, 5, 6}) {
    FrameHeader header = right;
    if (field == 0) header.codec ^= 1;
    if (field == 1) header.sender ^= 1;
    if (field == 2) header.generation ^= 1;
    if (field == 3) header.stream ^= 1;
    if (field == 4) header.step ^= 1;
    if (field == 5) header.count ^= 1;
    if (field == 6) header.place ^= 1;
    refused(header, ErrorCode::kMismatch);
  }
  FrameHeader of_a_round = right;
  of_a_round.flags = kFrameRound;
  refused(of_a_round, ErrorCode::kMismatch);
  FrameHeader of_a_result = right;
  of_a_result.flags = kFrameResult;
  refused(of_a_result, ErrorCode::kMismatch);
  hostile.expect_no_trace();
}

// Large changes on large estimates: finite in the message, not finite where they arrive.
TEST(BoundaryHostile, SumsThatOverflowAreRefusedAtBothEnds) {
  Pair pair(spec_of("fp32", "aqsgd"));
  const Ids ids = numbers(0, 8);
  pair.step(Values(8 * kSample, 3e38f), {.ids = ids});
  EXPECT_FALSE(pair.send(Values(8 * kSample, -3e38f), {.step = 1, .ids = ids}).finite);
  pair.rollback();
  pair.step(Values(8 * kSample, 2e38f), {.step = 1, .ids = ids});
  pair.send(Values(8 * kSample, 3e38f), {.step = 2, .ids = ids});
  Bytes bytes(pair.bytes().begin(), pair.bytes().end());
  const float huge = 3e38f;
  std::memcpy(bytes.data() + kFrameHeaderSize + 24 + 4, &huge, sizeof huge);
  bytes = resealed(bytes, read_frame(pair.bytes()).value().header);
  Values out(8 * kSample);
  EXPECT_EQ(pair.receiver->decode(bytes, {.step = 2, .ids = ids}, out).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace thinwire::testing
