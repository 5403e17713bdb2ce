// Tests of resumed Leader SGD with lossy codecs: workers whose references differ go on with one.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "exchange/testing/tampering_group.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kRanks = 4;
using Hosts = std::array<const char*, kRanks>;
using States = std::vector<StateArrays>;

// On hosts a, b, b, b.
SynchroniserOptions asynchronous(int rank) {
  return {.method = "leader:tau=5,tau_global=10,asynchronous=true",
          .codec = "int8",
          .host = rank == 0 ? "a" : "b"};
}

// The report of the worker's next round.
RoundReport round_of(Worker& worker) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (const auto report = worker.step()) return *report;
}

// Rank r leaves after 2 + 2r rounds.
States left_one_after_the_other() {
  States states(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, asynchronous(group.rank()));
    for (int round = 0; round < 2 + 2 * group.rank(); ++round) round_of(worker);
    worker.sync().leave();
    states[static_cast<size_t>(group.rank())] = worker.store().save();
  });
  return states;
}

std::shared_ptr<Store> loaded(const States& states, int rank) {
  auto store = std::make_shared<Store>();
  store->load(states, rank, kRanks).or_throw();
  return store;
}

// Those of "local" or "global" rounds, by rank.
std::vector<std::vector<std::byte>> references(const States& states, const std::string& kind) {
  std::vector<std::vector<std::byte>> all;
  for (const StateArrays& state : states)
    for (const StateArray& array : state)
      if (array.name == "sync/leader/" + kind + "/reference/values") all.push_back(array.data);
  return all;
}

TEST(LeaderResume, WorkersThatLeftAtDifferentTimesGoOnTogether) {
  const States states = left_one_after_the_other();
  States resumed(kRanks);
  run_local(kRanks, [&](Group& group) {
    Worker worker(group, asynchronous(group.rank()), loaded(states, group.rank()));
    resumed[static_cast<size_t>(group.rank())] = worker.store().save();
    RoundReport report;
    do report = round_of(worker);
    while (!report.global);
    EXPECT_FALSE(report.skipped);
    EXPECT_EQ(report.ranks, (std::vector<int>{0, 1, 2, 3}));
    const auto led_by = worker.sync().led_by();
    for (const auto& theirs : gather<float>(group, led_by)) EXPECT_TRUE(same_bits(theirs, led_by));
    worker.sync().leave();
  });
  // Of the last worker that left, in its group or of all.
  const auto global = references(states, "global"), local = references(states, "local");
  ASSERT_EQ(global.size(), kRanks);
  EXPECT_NE(global[0], global[3]);
  EXPECT_NE(local[1], local[3]);
  EXPECT_THAT(references(resumed, "global"), Each(global[3]));
  EXPECT_THAT(references(resumed, "local"), ElementsAre(local[0], local[3], local[3], local[3]));
}

TEST(LeaderResume, AReferenceThatArrivesDamagedIsRefused) {
  const States states = left_one_after_the_other();
  const auto run = [&] {
    run_local(kRanks, [&](Group& group) {
      TamperingGroup tampering(group, [&](int, int, std::span<std::byte> message) {
        if (message.size() == kModelSize * sizeof(float) && group.rank() == 1)
          message[7] ^= std::byte{1};
      });
      Worker(tampering, asynchronous(group.rank()), loaded(states, group.rank()));
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(HasSubstr("'leader/global': the reference that all")));
}

const std::string kGroups = "leader:tau=4,tau_global=1000,pull=1,prox=0.5";

// Workers take five steps on hosts a, a, b, b, with a local round in the fourth. Then they go on
// elsewhere, which is up to `body`. The last rank of a group leads it.
void move_to(const Hosts& hosts, const std::string& method,
             const std::function<void(Worker&, int rank)>& body) {
  States states(kRanks, Store().save());
  std::vector<std::vector<float>> parameters(kRanks);
  const auto on = [&](const Hosts& places, const std::string& how,
                      const std::function<void(Worker&, int rank)>& go_on) {
    run_local(kRanks, [&](Group& group) {
      const int rank = group.rank();
      const SynchroniserOptions options{
          .method = how, .codec = "int8", .host = places[static_cast<size_t>(rank)]};
      Worker worker(group, options, loaded(states, rank));
      worker.reported = [rank](double) { return -rank; };
      go_on(worker, rank);
    });
  };
  on({"a", "a", "b", "b"}, kGroups, [&](Worker& worker, int rank) {
    for (int step = 0; step < 5; ++step) worker.step();
    states[static_cast<size_t>(rank)] = worker.store().save();
    parameters[static_cast<size_t>(rank)] = worker.x;
  });
  on(hosts, method, [&](Worker& worker, int rank) {
    worker.x = parameters[static_cast<size_t>(rank)];
    worker.continue_at(5);
    body(worker, rank);
  });
}

TEST(LeaderResume, WorkersOfOtherGroupsFollowOneReference) {
  std::vector<std::vector<float>> ends(kRanks);
  move_to({"a", "b", "b", "b"}, kGroups, [&](Worker& worker, int rank) {
    for (int step = 0; step < 3; ++step) worker.step();  // to the next round
    ends[static_cast<size_t>(rank)] = worker.x;
  });
  EXPECT_TRUE(same_bits(ends[1], ends[2])) << "pulled to other weights of rank 3";
}

// Pulls between rounds begin with the first round of a group.
TEST(LeaderResume, TheLastLeaderOfAnotherGroupPullsNobody) {
  const auto pulled = [](const Hosts& hosts, const std::string& method = kGroups) {
    std::array<bool, kRanks> all{};
    move_to(hosts, method, [&](Worker& worker, int rank) {
      const std::vector<float> before = worker.x;
      worker.rate = 0;
      worker.step();
      all[static_cast<size_t>(rank)] = !same_bits(worker.x, before);
    });
    return all;
  };
  EXPECT_THAT(pulled({"a", "a", "b", "b"}), Each(true));
  EXPECT_THAT(pulled({"a", "b", "b", "b"}), Each(false));  // rank 0 alone
  EXPECT_THAT(pulled({"a", "a", "b", "b"}, "leader:tau=1000,tau_global=1000,prox=0.5"), Each(false))
      << "without local rounds";
}

}  // namespace
}  // namespace thinwire::testing
