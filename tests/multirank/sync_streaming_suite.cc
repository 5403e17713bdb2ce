// streaming against its formula, and against diloco where the two are the same; rounds that overlap
// steps.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "multirank/ranks.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;  // by rank

constexpr double kRate = 0.1f;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Two fragments of vector_model: its layers "first" and "second".
constexpr std::array<std::pair<size_t, size_t>, 2> kFragments = {{{0, 50}, {50, 110}}};

class SyncStreaming : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncStreaming, ::testing::ValuesIn(rank_counts()),
                         ::testing::PrintToStringParamName());

// All workers of the method, in double, by the loops that the paper writes.
class Oracle {
 public:
  Oracle(int ranks, uint64_t period, uint64_t delay, double mix)
      : period_(period),
        delay_(delay),
        mix_(mix),
        x(static_cast<size_t>(ranks), start_values<double>()),
        anchor(x[0]),
        velocity_(x[0].size()) {}

  void step() {
    for (size_t r = 0; r < x.size(); ++r) {
      Vector gradient(x[r].size());
      Quadratic().loss<double>(x[r], static_cast<int>(r), steps_, gradient);
      for (size_t i = 0; i < x[r].size(); ++i) x[r][i] -= kRate * gradient[i];
    }
    ++steps_;
    for (size_t p = 0; p < kFragments.size(); ++p) {
      const uint64_t first = (p + 1) * period_ / kFragments.size();
      if (steps_ >= first && (steps_ - first) % period_ == 0) send(p);
      if (steps_ >= first + delay_ && (steps_ - first - delay_) % period_ == 0) receive(p);
    }
  }

 private:
  void send(size_t p) {
    sent_[p].assign(anchor.size(), 0);
    for (const Vector& one : x)
      for (size_t i = kFragments[p].first; i < kFragments[p].second; ++i)
        sent_[p][i] += one[i] / static_cast<double>(x.size());
  }
  void receive(size_t p) {
    for (size_t i = kFragments[p].first; i < kFragments[p].second; ++i) {
      const double outer = anchor[i] - sent_[p][i];
      velocity_[i] = 0.6f * velocity_[i] + outer;
      anchor[i] -= 0.7f * (outer + 0.6f * velocity_[i]);
      for (Vector& one : x) one[i] = mix_ * one[i] + (1 - mix_) * anchor[i];
    }
  }

  const uint64_t period_, delay_;
  const double mix_;
  uint64_t steps_ = 0;

 public:
  Vectors x;
  Vector anchor;

 private:
  Vector velocity_;
  std::array<Vector, 2> sent_;
};

void expect_near(std::span<const float> x, const Vector& expected, int step) {
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], expected[i], 4e-6) << "step " << step << ", value " << i;
}

// Without delay, up to the step in which the other fragment's round begins, in it, and as late as
// may be.
TEST_P(SyncStreaming, FollowsTheFormula) {
  const std::vector<std::pair<int, std::string>> cases = {
      {0, "0"}, {1, "0"}, {2, "0.25"}, {3, "0.75"}, {5, "0.5"}};
  for (const auto& [delay, mix] : cases)
    on_all([&, delay = delay, mix = mix](Group& group) {
      Worker worker(group, {.method = "streaming:tau=6,fragments=2,rate=0.7,momentum=0.6,delay=" +
                                      std::to_string(delay) + ",mix=" + mix});
      Oracle oracle(n(), 6, static_cast<uint64_t>(delay), std::stod(mix));
      for (int step = 0; step < 100; ++step) {
        const auto report = worker.step();
        oracle.step();
        expect_near(worker.x, oracle.x[static_cast<size_t>(group.rank())], step);
        const int ended = step + 1 - delay;  // a round that began after so many steps
        ASSERT_EQ(report.has_value(), ended >= 3 && ended % 3 == 0) << step;
        if (!report) continue;
        EXPECT_EQ(report->begun, static_cast<uint64_t>(ended));
        EXPECT_EQ(report->fragment, ended % 6 == 0);
        EXPECT_EQ(report->round, static_cast<uint64_t>(ended / 3 - 1));
      }
      std::vector<float> centre(worker.x.size());
      worker.sync().centre(worker.x, centre);
      expect_near(centre, oracle.anchor, 100);
    });
}

TEST_P(SyncStreaming, OneFragmentWithoutDelayIsDilocoToTheBit) {
  std::vector<std::string> codecs = {"fp32", "topk:density=0.2"};
  if (n() <= 3)
    codecs.insert(codecs.end(), {"int4", "qsgd", "sidco:density=0.1", "powersgd:rank=2"});
  for (const std::string& codec : codecs)
    for (const std::string momentum : {"auto", "optimizer"})
      on_all([&](Group& group) {
        const std::string common = "tau=3,rate=0.8,momentum=0.5";
        Worker plain(group, {.method = "diloco:" + common, .codec = codec, .momentum = momentum});
        Worker worker(group, {.method = "streaming:fragments=1,delay=0,mix=0," + common,
                              .codec = codec,
                              .momentum = momentum});
        for (int step = 0; step < 20; ++step) {
          const auto expected = plain.step(), report = worker.step();
          ASSERT_TRUE(same_bits(worker.x, plain.x)) << codec << " step " << step;
          ASSERT_EQ(report.has_value(), expected.has_value());
          if (!report) continue;
          EXPECT_EQ(report->sent_bytes, expected->sent_bytes) << codec;
          EXPECT_EQ(report->payload_bytes, expected->payload_bytes) << codec;
          EXPECT_EQ(report->round, expected->round);
        }
        std::vector<float> centre(worker.x.size()), same(worker.x.size());
        worker.sync().centre(worker.x, centre);
        plain.sync().centre(plain.x, same);
        EXPECT_TRUE(same_bits(centre, same));
      });
}

// With a mix of 0 all have the anchor's fragment right after its round, whatever the codec.
TEST_P(SyncStreaming, AllHaveTheSameFragmentAfterItsRound) {
  for (const std::string codec : {"fp32", "int4", "topk:density=0.1"})
    on_all([&](Group& group) {
      Worker worker(group, {.method = "streaming:tau=4,fragments=2,delay=2", .codec = codec});
      std::vector<float> centre(worker.x.size());
      for (int step = 0; step < 16; ++step) {
        const auto report = worker.step();
        worker.sync().centre(worker.x, centre);
        for (const auto& theirs : gather<float>(group, centre))
          EXPECT_TRUE(same_bits(theirs, centre));
        if (!report) continue;
        const auto [begin, end] = kFragments[static_cast<size_t>(report->fragment)];
        EXPECT_TRUE(same_bits(std::span(worker.x).subspan(begin, end - begin),
                              std::span(centre).subspan(begin, end - begin)));
      }
    });
}

// The values are those of the step in which the round began; the round is found bad when it ends.
TEST_P(SyncStreaming, ARoundThatBeganNonFiniteChangesNothing) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "streaming:tau=4,fragments=2,delay=1", .codec = "int8"});
    std::vector<float> before(worker.x.size()), after(worker.x.size());
    for (int step = 0; step < 5; ++step) worker.step();
    worker.sync().centre(worker.x, before);
    const std::vector<float> whole = worker.x;
    worker.rate = 0;
    if (group.rank() == n() - 1) worker.x[3] = kNaN;
    EXPECT_FALSE(worker.step());  // the first fragment's round begins
    worker.x = whole;
    const auto report = worker.step();
    ASSERT_TRUE(report && report->skipped);
    EXPECT_EQ(report->fault.code, ErrorCode::kNonFinite);
    EXPECT_EQ(report->fault.rank, n() - 1);
    EXPECT_EQ(report->fault.stream, "sync/first.weight");
    EXPECT_EQ(report->fragment, 0);
    EXPECT_TRUE(same_bits(worker.x, whole));
    worker.sync().centre(worker.x, after);
    EXPECT_TRUE(same_bits(after, before));
    worker.step();
    EXPECT_FALSE(worker.step()->skipped);  // the second fragment's
  });
}

// Of both fragments in turn.
TEST_P(SyncStreaming, BadRoundsInARowEndTheRunOnAll) {
  on_all([&](Group& group) {
    Worker worker(group, {.method = "streaming:tau=2,fragments=2,delay=1", .max_skipped = 2});
    worker.rate = 0;
    if (group.rank() == 0) worker.x[0] = worker.x[100] = kNaN;
    EXPECT_FALSE(worker.step());
    EXPECT_TRUE(worker.step()->skipped);
    EXPECT_THROW(worker.step(), AgreedError);
  });
}

// Bits as of a run that was never saved, though saving waits for the round that is under way.
TEST_P(SyncStreaming, SavingInEveryStepChangesNothing) {
  for (const std::string codec : {"fp32", "sidco:density=0.1"})
    on_all([&](Group& group) {
      const SynchroniserOptions options = {.method = "streaming:tau=4,fragments=2,delay=3,mix=0.25",
                                           .codec = codec};
      Worker saved(group, options), plain(group, options);
      for (int step = 0; step < 14; ++step) {
        saved.step();
        plain.step();
        saved.store().save();
        ASSERT_TRUE(same_bits(saved.x, plain.x)) << codec << " step " << step;
      }
    });
}

// Two ranks' state, with a round under way, goes on with any number of ranks: what had arrived is
// taken by all.
TEST_P(SyncStreaming, ARoundUnderWayIsResized) {
  const SynchroniserOptions options = {.method = "streaming:tau=4,fragments=2,delay=3",
                                       .codec = "int8"};
  on_all([&](Group& group) {
    std::vector<StateArrays> states(2);
    std::vector<std::vector<float>> anchors(2), parameters(2);
    run_local(2, [&](Group& two) {
      Worker worker(two, options);
      for (int step = 0; step < 7; ++step) worker.step();
      const auto at = static_cast<size_t>(two.rank());
      states[at] = worker.store().save();
      parameters[at] = worker.x;
      worker.step();
      const auto report = worker.step();
      ASSERT_TRUE(report && report->begun == 6);
      anchors[at].resize(worker.x.size());
      worker.sync().centre(worker.x, anchors[at]);
    });
    const auto store = std::make_shared<Store>();
    store->load(states, group.rank(), n()).or_throw();
    Worker worker(group, options, store);
    worker.x = parameters[static_cast<size_t>(group.rank()) % 2];
    worker.continue_at(7);
    EXPECT_FALSE(worker.step());
    const auto report = worker.step();
    ASSERT_TRUE(report && !report->skipped);
    EXPECT_EQ(report->begun, 6u);
    std::vector<float> centre(worker.x.size());
    worker.sync().centre(worker.x, centre);
    EXPECT_TRUE(same_bits(std::span(centre).first(50), std::span(anchors[0]).first(50)));
    for (int step = 0; step < 8; ++step) {
      const auto next = worker.step();
      worker.sync().centre(worker.x, centre);
      for (const auto& theirs : gather<float>(group, centre))
        EXPECT_TRUE(same_bits(theirs, centre));
      if (!next) continue;
      EXPECT_FALSE(next->skipped);
      const auto [begin, end] = kFragments[static_cast<size_t>(next->fragment)];
      const auto own = std::span<const float>(worker.x).subspan(begin, end - begin);
      for (const auto& theirs : gather<float>(group, own)) EXPECT_TRUE(same_bits(theirs, own));
    }
  });
}

// A round that is found bad before the state is saved is skipped after it is loaded, for the same
// reason.
TEST_P(SyncStreaming, ASkippedRoundIsSavedAndLoaded) {
  const SynchroniserOptions options = {.method = "streaming:tau=4,fragments=2,delay=3",
                                       .codec = "int8"};
  on_all([&](Group& group) {
    Worker first(group, options);
    for (int step = 0; step < 7; ++step) first.step();
    first.rate = 0;
    const std::vector<float> whole = first.x;
    if (group.rank() == n() - 1) first.x[60] = kNaN;
    first.step();  // the second fragment's round begins
    first.x = whole;
    const StateArrays mine = first.store().save();

    const auto store = std::make_shared<Store>();
    std::vector<StateArrays> states(static_cast<size_t>(n()));
    states[static_cast<size_t>(group.rank())] = mine;  // of the others nobody reads values here
    for (StateArrays& state : states)
      if (state.empty()) state = mine;
    store->load(states, group.rank(), n()).or_throw();
    Worker second(group, options, store);
    second.rate = 0;
    second.x = whole;
    second.continue_at(8);
    for (int step = 9; step <= 14; ++step) {
      const auto expected = first.step(), report = second.step();
      ASSERT_EQ(report.has_value(), expected.has_value()) << step;
      ASSERT_TRUE(same_bits(second.x, first.x)) << step;
      if (!report) continue;
      EXPECT_EQ(report->skipped, step == 11) << step;
      EXPECT_EQ(expected->skipped, step == 11) << step;
      EXPECT_EQ(report->fault.code, expected->fault.code);
      EXPECT_EQ(report->fault.rank, expected->fault.rank);
      EXPECT_EQ(report->fault.stream, expected->fault.stream);
      EXPECT_EQ(report->sent_bytes, expected->sent_bytes);
      if (!report->skipped) continue;
      EXPECT_EQ(report->fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report->fault.rank, n() - 1);
      EXPECT_EQ(report->fault.stream, "sync/second.weight");
    }
  });
}

TEST_P(SyncStreaming, ASavedRoundUnderWayNeedsTheSameTimes) {
  on_all([&](Group& group) {
    Worker first(group, {.method = "streaming:tau=4,fragments=2,delay=3"});
    for (int step = 0; step < 7; ++step) first.step();
    const std::vector<StateArrays> states(static_cast<size_t>(n()), first.store().save());
    const auto go_on = [&](const std::string& method) {
      const auto store = std::make_shared<Store>();
      store->load(states, group.rank(), n()).or_throw();
      Worker(group, {.method = method}, store);
    };
    EXPECT_THAT(
        [&] { go_on("streaming:tau=4,fragments=2,delay=1"); },
        ThrowsMessage<Error>(HasSubstr("has a round since step 6 of fragment 0 under way")));
    EXPECT_NO_THROW(go_on("streaming:tau=4,fragments=2,delay=2"));
  });
}

// A round sends what the exchange of a fragment sends: the first of two is less than half of the
// parameters.
TEST_P(SyncStreaming, ARoundSendsOneFragment) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    Worker all(group, {.method = "diloco:tau=4"});
    Worker worker(group, {.method = "streaming:tau=4,fragments=2,delay=1"});
    uint64_t whole = 0;
    std::array<uint64_t, 2> parts = {};
    for (int step = 0; step < 9; ++step) {
      if (const auto report = all.step()) whole = report->sent_bytes;
      if (const auto report = worker.step()) {
        EXPECT_EQ(report->values, report->fragment == 0 ? 50u : 60u);
        parts[static_cast<size_t>(report->fragment)] = report->sent_bytes;
      }
    }
    // Shards of so few values are not of equal size, and a round has an agreement of its own.
    EXPECT_NEAR(static_cast<double>(parts[0] + parts[1]), static_cast<double>(whole),
                0.1 * static_cast<double>(whole));
    EXPECT_LT(std::max(parts[0], parts[1]), whole * 3 / 4);
  });
}

}  // namespace
}  // namespace thinwire::testing
