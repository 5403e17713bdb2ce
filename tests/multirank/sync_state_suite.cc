// What synchronisers remember: resumed runs go on bit for bit, bad rounds leave no trace, codecs
// lose nothing for good.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/checksum.h"
#include "exchange/testing/tampering_group.h"
#include "multirank/ranks.h"
#include "sync/testing/sync_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int kBroadcastTag = 30001;
constexpr std::string_view kOverlapped = "streaming:tau=4,fragments=2,delay=3,mix=0.5";

// Every rule at short periods, with several codecs; at more than 2 ranks with a few of them.
std::vector<SynchroniserOptions> all_options(int ranks) {
  std::vector<SynchroniserOptions> all;
  const std::string groups = ",groups=" + std::to_string(std::min(2, ranks));
  std::vector<std::string> codecs = {"fp32", "sidco:density=0.1"};
  if (ranks <= 2) codecs.insert(codecs.end(), {"int8", "topk:density=0.2"});
  for (const std::string& codec : codecs)
    for (const SynchroniserInfo& info : list_synchronisers()) {
      std::string method = std::string(info.name) + ":tau=2";
      if (info.name == "gossip" && codec != "fp32") continue;  // takes no other
      if (info.name == "gossip") method += ",graph=random";
      if (info.name == "leader") method += ",tau_global=4,window=3" + groups;
      all.push_back({.method = method, .codec = codec, .seed = 3});
    }
  all.push_back({.method = "leader:tau=2,tau_global=4,prox=0.3,prox_global=0.3" + groups});
  for (const std::string& codec : codecs)  // after 7 steps a round is under way, since step 6
    all.push_back({.method = std::string(kOverlapped), .codec = codec});
  return all;
}

bool same_state(const StateArrays& a, const StateArrays& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].name != b[i].name || a[i].data != b[i].data) return false;
  return true;
}

// Without what local steps change, and the counters: a bad round was held, too.
StateArrays memories(const Store& store) {
  StateArrays saved = store.save();
  std::erase_if(saved, [](const StateArray& array) {
    return is_seal(array) || array.name.ends_with("/counters") || array.name.ends_with("/losses") ||
           array.name.ends_with("/losses_seen") || array.name == "sync/parle/average" ||
           array.name == "sync/streaming/rounds";
  });
  return saved;
}

class SyncState : public ::testing::TestWithParam<int> {
 protected:
  void on_all(const std::function<void(Group&)>& body) { on_ranks(GetParam(), body); }
  int n() const { return GetParam(); }
};
std::vector<int> few_counts() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count > 4; });
  return counts;
}
INSTANTIATE_TEST_SUITE_P(Ranks, SyncState, ::testing::ValuesIn(few_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(SyncState, AResumedRunGoesOnBitForBit) {
  for (const SynchroniserOptions& options : all_options(n()))
    on_all([&](Group& group) {
      Worker whole(group, options), first(group, options);
      for (int step = 0; step < 7; ++step) {
        whole.step();
        first.step();
      }
      const auto store = std::make_shared<Store>();
      store
          ->load(std::vector<StateArrays>(static_cast<size_t>(n()), first.store().save()),
                 group.rank(), n())
          .or_throw();
      Worker second(group, options, store);
      EXPECT_TRUE(store->unclaimed().empty());
      second.x = first.x;
      second.continue_at(7);
      for (int step = 7; step < 16; ++step) {
        const auto expected = whole.step(), report = second.step();
        ASSERT_TRUE(same_bits(second.x, whole.x)) << options.method << " " << options.codec;
        ASSERT_EQ(report.has_value(), expected.has_value());
        if (!report) continue;
        EXPECT_EQ(report->round, expected->round);
        EXPECT_EQ(report->step, expected->step);
        EXPECT_EQ(report->losses, expected->losses);
        EXPECT_EQ(report->leaders, expected->leaders);
      }
      EXPECT_TRUE(same_state(whole.store().save(), second.store().save())) << options.method;
    });
}

// The state of two ranks, from which any number of ranks go on together. Where each of the two has
// as many successors, what they agreed on stays what it was.
TEST_P(SyncState, AnotherNumberOfRanksGoesOn) {
  for (const SynchroniserOptions& options : all_options(n()))
    on_all([&](Group& group) {
      std::vector<StateArrays> states(2);
      std::vector<std::vector<float>> parameters(2);
      std::vector<float> agreed, centre;
      run_local(2, [&](Group& two) {
        Worker worker(two, options);
        for (int step = 0; step < 8; ++step) worker.step();
        const auto at = static_cast<size_t>(two.rank());
        states[at] = worker.store().save();
        parameters[at] = worker.x;
        std::vector<float> common(worker.x.size());
        worker.sync().centre(worker.x, common);
        if (at == 0) agreed = common;
      });
      const auto store = std::make_shared<Store>();
      store->load(states, group.rank(), n()).or_throw();
      Worker worker(group, options, store);
      const bool alone = n() == 1;  // without rounds, and without what only rounds remember
      EXPECT_TRUE(alone || store->unclaimed().empty()) << options.method;
      worker.x = parameters[static_cast<size_t>(group.rank()) % 2];
      worker.continue_at(8);
      centre.resize(worker.x.size());
      worker.sync().centre(worker.x, centre);
      float away = 0;
      for (size_t i = 0; i < centre.size(); ++i)
        away = std::max(away, std::abs(centre[i] - agreed[i]));
      if (n() % 2 == 0) {
        EXPECT_LT(away, 1e-5f) << options.method << " " << options.codec;
      }
      int rounds = 0;
      for (int step = 0; step < 8; ++step) {
        const auto report = worker.step();
        if (!report || !report->global) continue;
        ++rounds;
        EXPECT_FALSE(report->skipped) << options.method << " " << options.codec;
        worker.sync().centre(worker.x, centre);
        for (const auto& theirs : gather<float>(group, centre))
          EXPECT_TRUE(same_bits(theirs, centre)) << options.method << " " << options.codec;
      }
      EXPECT_GE(rounds, alone ? 0 : 2) << options.method;
    });
}

TEST_P(SyncState, TwoRunsAreTheSameBits) {
  for (const SynchroniserOptions& options : all_options(n()))
    on_all([&](Group& group) {
      Worker one(group, options), two(group, options);
      for (int step = 0; step < 10; ++step) {
        one.step();
        two.step();
        ASSERT_TRUE(same_bits(one.x, two.x)) << options.method << " " << options.codec;
      }
    });
}

// A worker that has broken down never leads, and what it holds goes nowhere.
TEST_P(SyncState, NonFiniteParametersNeverLead) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "leader:tau=1,tau_global=1,pull_global=0.5,window=1"});
    worker.reported = [&](double) { return group.rank() == 0 ? 0.001 : 1.0; };
    if (group.rank() == 0) worker.x[7] = kNaN;
    const auto report = worker.step();
    EXPECT_FALSE(report->skipped);
    EXPECT_EQ(report->leader, 1);
    EXPECT_TRUE(std::isinf(report->losses[0]));
    if (group.rank() > 0) {
      EXPECT_TRUE(std::isfinite(worker.x[7]));
    }
  });
}

TEST_P(SyncState, NobodyLeadsWhereAllLossesAreBad) {
  if (n() == 1) return;
  on_all([&](Group& group) {
    Worker worker(group, {.method = "leader:tau=1,tau_global=1", .max_skipped = 3});
    Worker alone(group, {.method = "leader:tau=99,tau_global=99"});
    worker.reported = [](double) { return std::nan(""); };
    for (int round = 0; round < 2; ++round) {
      const auto report = worker.step();
      alone.step();
      EXPECT_TRUE(report->skipped);
      EXPECT_EQ(report->fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report->leader, -1);
      EXPECT_TRUE(same_bits(worker.x, alone.x));
    }
    EXPECT_THROW(worker.step(), AgreedError);
  });
}

TEST_P(SyncState, ANonFiniteReplicaUndoesARoundOfMeans) {
  if (n() == 1) return;
  for (const SynchroniserOptions& options : all_options(n())) {
    if (options.method.starts_with("leader") || options.method.starts_with("gossip")) continue;
    if (options.method == kOverlapped) continue;  // sync_streaming_suite
    on_all([&](Group& group) {
      Worker worker(group, options);
      for (int step = 0; step < 3; ++step) worker.step();
      const StateArrays before = memories(worker.store());
      if (group.rank() == n() - 1) std::fill(worker.x.begin(), worker.x.end(), kNaN);
      const std::vector<float> x = worker.x;
      worker.rate = 0;
      const auto report = worker.step();
      ASSERT_TRUE(report->skipped) << options.method << " " << options.codec;
      EXPECT_EQ(report->fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report->fault.rank, n() - 1);
      EXPECT_TRUE(group.rank() == n() - 1 || same_bits(worker.x, x));
      EXPECT_TRUE(same_state(memories(worker.store()), before)) << options.method;
    });
  }
}

// Wherever one rank sees a flipped bit in a leader's frame, no rank is pulled.
TEST_P(SyncState, ACorruptFrameUndoesTheRoundOnAll) {
  if (n() == 1) return;
  for (const std::string codec : {"fp32", "int8", "topk:density=0.2"})
    for (const double where : {0.0, 0.02, 0.5, 1.0})
      on_all([&](Group& group) {
        bool armed = false;
        TamperingGroup tampering(group, [&](int, int tag, std::span<std::byte> message) {
          if (tag != kBroadcastTag || message.size() <= 8 || group.rank() != n() - 1) return;
          if (!std::exchange(armed, false)) return;
          message[static_cast<size_t>(where * static_cast<double>(message.size() - 1))] ^=
              std::byte{0x10};
        });
        Worker worker(tampering, {.method = "leader:tau=1,tau_global=1", .codec = codec});
        worker.reported = [&](double) { return group.rank(); };  // rank 0 leads
        worker.step();
        const StateArrays before = memories(worker.store());
        worker.rate = 0;
        const std::vector<float> x = worker.x;
        armed = true;
        const auto report = worker.step();
        ASSERT_TRUE(report->skipped) << codec << " at " << where;
        EXPECT_EQ(report->fault.code, ErrorCode::kCorrupt);
        EXPECT_EQ(report->fault.rank, 0);
        EXPECT_EQ(report->fault.stream, "leader/global");
        EXPECT_TRUE(same_bits(worker.x, x));
        EXPECT_TRUE(same_state(memories(worker.store()), before));
        EXPECT_FALSE(worker.step()->skipped);
      });
}

// Frames with a good checksum that are not the one expected.
TEST_P(SyncState, AFrameOfAnotherRoundOrSenderIsCorrupt) {
  if (n() == 1) return;
  using Change = void (*)(FrameHeader&);
  const Change changes[] = {
      [](FrameHeader& h) { h.step += 1; },   [](FrameHeader& h) { h.stream += 1; },
      [](FrameHeader& h) { h.sender += 1; }, [](FrameHeader& h) { h.codec += 1; },
      [](FrameHeader& h) { h.count += 1; },  [](FrameHeader& h) { h.generation += 1; }};
  for (const Change change : changes)
    on_all([&](Group& group) {
      TamperingGroup tampering(group, [&](int, int tag, std::span<std::byte> message) {
        if (tag != kBroadcastTag || message.size() <= 8 || group.rank() != n() - 1) return;
        FrameHeader header = read_frame(message).value().header;
        change(header);
        seal_frame(header, message);
      });
      Worker worker(tampering, {.method = "leader:tau=1,tau_global=1"});
      worker.reported = [&](double) { return group.rank(); };
      const auto report = worker.step();
      EXPECT_TRUE(report->skipped);
      EXPECT_EQ(report->fault.rank, 0);
    });
}

}  // namespace
}  // namespace thinwire::testing
