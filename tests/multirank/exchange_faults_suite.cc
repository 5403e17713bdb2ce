// Steps that must not count: NaN, Inf and corrupt frames on one rank undo the step on every rank.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "multirank/ranks.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

constexpr size_t kLinear = 7;  // "linear.weight" of small_model
constexpr size_t kBias = 8;
constexpr int kLastTag = 30000;  // of the exchange's own messages

// Chunks are small, so that there are several.
std::vector<ExchangeOptions> all_options(int ranks) {
  std::vector<ExchangeOptions> all = codecs_and_methods(ranks);
  if (ranks >= 3)  // gather goes on without faulty ranks: exchange_faulty_suite.cc
    all.push_back({.codec = "int8", .method = "scatter-reduce", .combine = "cge:f=1"});
  for (ExchangeOptions& options : all) {
    options.feedback = "residual";
    options.chunk_values = 200;
  }
  return all;
}

bool all_zero(const Tensors& tensors) {
  for (const Values& values : tensors)
    for (const float value : values)
      if (value != 0) return false;
  return true;
}

class ExchangeFaults : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }

  int last() const { return GetParam() - 1; }

  // A step in which the last rank has `bad` in tensor `index`.
  StepReport bad_step(Side& side, Group& group, uint64_t number, size_t index, float bad) const {
    side.values = gradients(small_model(), group.rank(), number);
    if (group.rank() == last()) side.values[index].back() = bad;
    for (size_t i = side.values.size(); i-- > 0;) side.start(i);
    return side.exchange().finish();
  }
};

std::vector<int> two_and_more() {
  std::vector<int> counts = rank_counts();
  std::erase(counts, 1);
  return counts;
}
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeFaults, ::testing::ValuesIn(two_and_more()),
                         ::testing::PrintToStringParamName());

TEST_P(ExchangeFaults, ANonFiniteGradientOnOneRankUndoesTheStepOnAll) {
  for (const ExchangeOptions& options : all_options(GetParam()))
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
      for (const size_t index : {kLinear, kBias})
        on_all([&](Group& group) {
          // `clean` never sees the bad step: what comes after must be the same bits.
          Side side(group, small_model(), options);
          Side clean(group, small_model(), options);
          for (uint64_t step = 0; step < 3; ++step) {
            side.step(step);
            clean.step(step);
          }
          const StateArrays before = side.store().save();

          const StepReport report = bad_step(side, group, 3, index, bad);
          EXPECT_TRUE(report.skipped);
          EXPECT_EQ(report.step, 3u);
          EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
          EXPECT_EQ(report.fault.rank, last());
          EXPECT_EQ(report.fault.stream, side.exchange().streams().size() == 1 ? "model"
                                         : index == kLinear                    ? "linear.weight"
                                                            : "dense:linear.bias");
          EXPECT_TRUE(all_zero(side.values));
          EXPECT_TRUE(same_state(side.store().save(), before)) << options.codec;

          clean.exchange().set_step(4);
          for (uint64_t step = 4; step < 7; ++step) {
            EXPECT_FALSE(side.step(step).skipped);
            clean.step(step);
            EXPECT_TRUE(same_bits(side.values, clean.values)) << options.codec;
          }
          EXPECT_TRUE(same_state(side.store().save(), clean.store().save()));
        });
}

// Whatever it remembers: a residual, a velocity, an estimate that all ranks follow.
TEST_P(ExchangeFaults, NoMemoryKeepsATraceOfASkippedStep) {
  for (const FeedbackEntry* entry : list_feedbacks())
    for (const std::string codec : {"topk:density=0.1", "fp16", "test-nearest"})
      on_all([&](Group& group) {
        const ExchangeOptions options{.codec = codec, .feedback = std::string(entry->name)};
        Side side(group, small_model(), options);
        Side clean(group, small_model(), options);
        side.step(0);
        clean.step(0);
        const StateArrays before = side.store().save();
        EXPECT_TRUE(bad_step(side, group, 1, kLinear, NAN).skipped);
        EXPECT_TRUE(same_state(side.store().save(), before)) << entry->name;
        clean.exchange().set_step(2);
        EXPECT_FALSE(side.step(2).skipped);
        clean.step(2);
        EXPECT_TRUE(same_bits(side.values, clean.values)) << entry->name;
      });
}

TEST_P(ExchangeFaults, TheSumMayOverflowAlthoughNoRankDid) {
  for (const ExchangeOptions& options : one_per_method())
    on_all([&](Group& group) {
      if (options.method == "gather") return;  // adds what is divided already
      Side side(group, {{"v", {5}, TensorKind::kLinear}, {"w", {30}, TensorKind::kLinear}},
                options);
      side.values = {Values(5, 1.0f), Values(30, 3e38f)};
      side.start(0);
      side.start(1);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report.fault.rank, -1);
      EXPECT_EQ(report.fault.stream, "w");
      EXPECT_TRUE(all_zero(side.values));
    });
}

TEST_P(ExchangeFaults, LibraryMethodUndoesNonFiniteStepsToo) {
  on_all([&](Group& group) {
    Side side(group, small_model(), {.codec = "fp32", .feedback = "residual", .method = "library"});
    side.step(0);
    const StepReport report = bad_step(side, group, 1, kLinear, NAN);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.fault.rank, last());
    EXPECT_EQ(report.fault.stream, "linear.weight");
    EXPECT_TRUE(all_zero(side.values));
    EXPECT_FALSE(side.step(2).skipped);
  });
}

// Every bit of what arrives matters: wherever the last rank sees one flipped in a message of rank
// 0, all ranks skip the step and name rank 0, and nobody remembers anything of it.
TEST_P(ExchangeFaults, ACorruptMessageSeenByOneRankUndoesTheStepOnAll) {
  for (const ExchangeOptions& options : all_options(GetParam()))
    for (const double where : {0.0, 0.01, 0.1, 0.5, 0.9, 1.0})
      on_all([&](Group& group) {
        bool armed = false;
        TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
          if (message.size() <= 8 || tag >= kLastTag || group.rank() != last() || from != 0) return;
          if (!std::exchange(armed, false)) return;
          const auto at = static_cast<size_t>(where * static_cast<double>(message.size() - 1));
          message[at] ^= std::byte{0x10};
        });
        Side side(tampering, small_model(), options);
        Side clean(tampering, small_model(), options);
        side.step(0);
        clean.step(0);
        const StateArrays before = side.store().save();

        armed = true;
        const StepReport report = side.step(1);
        EXPECT_TRUE(report.skipped) << options.codec << " at " << where;
        EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
        EXPECT_EQ(report.fault.rank, 0);
        EXPECT_TRUE(all_zero(side.values));
        EXPECT_TRUE(same_state(side.store().save(), before)) << options.codec;

        clean.exchange().set_step(2);
        clean.step(2);
        EXPECT_FALSE(side.step(2).skipped);
        EXPECT_TRUE(same_bits(side.values, clean.values)) << options.codec;
      });
}

// A frame with a good checksum, but of another step, stream, sender, codec or count.
TEST_P(ExchangeFaults, AFrameThatIsNotTheOneExpectedIsCorrupt) {
  using Change = void (*)(FrameHeader&);
  const Change changes[] = {
      [](FrameHeader& h) { h.step += 1; },   [](FrameHeader& h) { h.stream += 1; },
      [](FrameHeader& h) { h.sender += 1; }, [](FrameHeader& h) { h.codec += 1; },
      [](FrameHeader& h) { h.count += 1; },  [](FrameHeader& h) { h.generation += 1; },
      [](FrameHeader& h) { h.round += 1; },  [](FrameHeader& h) { h.flags ^= kFrameRound; },
      [](FrameHeader& h) { h.place += 1; },  [](FrameHeader& h) { h.flags ^= kFrameResult; }};
  for (const ExchangeOptions& options : one_per_method())
    for (const Change change : changes)
      on_all([&](Group& group) {
        TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
          if (message.size() <= 8 || tag >= kLastTag || from != 0 || group.rank() != last()) return;
          FrameHeader header = read_frame(message).value().header;
          change(header);
          seal_frame(header, message.first(kFrameHeaderSize + header.payload_size));
        });
        Side side(tampering, {{"w", {100}, TensorKind::kLinear}}, options);
        side.values = {Values(100, 1.0f)};
        side.start(0);
        const StepReport report = side.exchange().finish();
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
        EXPECT_EQ(report.fault.rank, 0);
        EXPECT_EQ(report.fault.stream, "w");
      });
}

// A sender that flags its frame, but does not own up to it, is still named.
TEST_P(ExchangeFaults, AFlaggedFrameIsItsSendersFault) {
  for (const ExchangeOptions& options : one_per_method())
    on_all([&](Group& group) {
      if (options.method == "sparse-reduce") return;  // sparse_reduce_test.cc: rank 0 is the owner
      const bool sized = options.method == "gather" || options.method == "shared-index";
      const int contributions = sized ? 1 : 0;  // their tag
      bool first = true;
      TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
        if (tag != contributions || from != 0 || group.rank() != last()) return;
        if (!std::exchange(first, false)) return;  // in later rounds a flag may speak of others
        FrameHeader header = read_frame(message).value().header;
        header.flags |= kFrameNonFinite;
        header.payload_size = 0;
        seal_frame(header, message.first(kFrameHeaderSize));
      });
      Side side(tampering, {{"w", {100}, TensorKind::kLinear}}, options);
      side.values = {Values(100, 1.0f)};
      side.start(0);
      const StepReport report = side.exchange().finish();
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report.fault.rank, 0);
    });
}

TEST_P(ExchangeFaults, SeveralInARowStopTheRunAndNameTheCulprit) {
  for (ExchangeOptions options : one_per_method()) {
    options.max_skipped = 3;
    on_all([&](Group& group) {
      Side side(group, small_model(), options);
      for (uint64_t step = 0; step < 2; ++step)
        EXPECT_TRUE(bad_step(side, group, step, kLinear, NAN).skipped);
      EXPECT_FALSE(side.step(2).skipped);  // counting starts again
      for (uint64_t step = 3; step < 5; ++step)
        EXPECT_TRUE(bad_step(side, group, step, kLinear, NAN).skipped);
      try {
        bad_step(side, group, 5, kLinear, NAN);
        ADD_FAILURE() << "the third in a row passed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
        EXPECT_EQ(
            std::string(error.what()),
            "exchange: 3 steps in a row were skipped; the last: stream 'linear.weight' of rank " +
                std::to_string(last()) + " has a NaN or Inf in step 5");
      }
      EXPECT_TRUE(all_zero(side.values));
      EXPECT_THROW(side.start(0), Error);
      EXPECT_THROW(side.exchange().finish(), Error);
    });
  }
}

TEST_P(ExchangeFaults, ZeroMeansThatNoNumberOfSkippedStepsStopsTheRun) {
  on_all([&](Group& group) {
    Side side(group, small_model(), {.max_skipped = 0});
    for (uint64_t step = 0; step < 20; ++step)
      EXPECT_TRUE(bad_step(side, group, step, kLinear, NAN).skipped);
    EXPECT_FALSE(side.step(20).skipped);
  });
}

}  // namespace
}  // namespace thinwire::testing
