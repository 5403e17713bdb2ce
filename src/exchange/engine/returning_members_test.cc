// Tests of who is reported as lost after groups failed into which some ranks came and others did
// not: a rank that is alive never is.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

const ExchangeOptions kSparse{.codec = "topk:density=0.05", .method = "gather"};
constexpr std::chrono::milliseconds kShort{1500};

// Groups that failed are kept, as others may still wait in them.
using Graves = std::vector<std::unique_ptr<Group>>;

// All of them try to go on together, in this order of ranks, and the last one fails at its transfer
// number `at`. Silent, it gives the others the time to end what they can. Returns who came into the
// group.
std::vector<bool> try_to_regroup(const std::vector<ElasticWorker*>& workers, uint32_t generation,
                                 int at, bool silent, Graves& graves) {
  auto groups = make_local_groups(static_cast<int>(workers.size()));
  for (const auto& group : groups) group->set_deadline(kShort);
  const auto life = std::make_shared<Life>();
  life->transfers = at;
  life->silent = silent;
  groups.back() = std::make_unique<FrailGroup>(std::move(groups.back()), life);
  std::array<std::atomic<bool>, 8> came{};
  on_each(workers, [&](ElasticWorker& worker) {
    size_t i = 0;
    while (workers[i] != &worker) ++i;
    ExchangeOptions options = kSparse;
    options.generation = generation;
    const std::string error = error_of([&] {
      if (worker.exchange == nullptr)
        worker.exchange =
            join_exchange(*groups[i], worker.store, small_model(), options, &worker.how);
      else
        worker.how = worker.exchange->regroup(*groups[i], generation);
    });
    came[i] = error.empty();
    if (!came[i]) groups[i]->abort("regroup failed");
  });
  std::vector<bool> who;
  for (size_t i = 0; i < workers.size(); ++i) who.push_back(came[i]);
  for (auto& group : groups) graves.push_back(std::move(group));
  return who;
}

// The transfers of the last one of them when all goes well.
int transfers_of_last(const std::vector<ElasticWorker*>& workers, uint32_t generation,
                      Graves& graves) {
  auto groups = make_local_groups(static_cast<int>(workers.size()));
  const auto life = std::make_shared<Life>();
  const int many = life->transfers;
  groups.back() = std::make_unique<FrailGroup>(std::move(groups.back()), life);
  on_each(workers, [&](ElasticWorker& worker) {
    size_t i = 0;
    while (workers[i] != &worker) ++i;
    ExchangeOptions options = kSparse;
    options.generation = generation;
    if (worker.exchange == nullptr)
      worker.exchange =
          join_exchange(*groups[i], worker.store, small_model(), options, &worker.how);
    else
      worker.how = worker.exchange->regroup(*groups[i], generation);
  });
  for (auto& group : groups) graves.push_back(std::move(group));
  return many - life->transfers;
}

// b comes neither into the group of generation 3, into which a comes, nor into that of generation
// 4.
TEST(ReturningMembers, WhoIsAliveIsNotLostAfterTwoGroupsThatFailed) {
  Graves graves;
  ElasticWorker a(0), b(1), c(2);
  const std::vector<ElasticWorker*> all{&a, &b, &c};
  regroup(all, 1, kSparse);
  on_each(all, [&](ElasticWorker& worker) { step(worker, 0); });
  const int transfers = transfers_of_last(all, 2, graves);
  on_each(all, [&](ElasticWorker& worker) { step(worker, 1); });
  // The last transfer of c is a message to b: a has all that it waits for.
  ASSERT_EQ(try_to_regroup(all, 3, transfers - 1, true, graves),
            (std::vector<bool>{true, false, false}));
  ASSERT_EQ(try_to_regroup(all, 4, 0, false, graves), std::vector<bool>(3));
  regroup(all, 5, kSparse);
  for (const ElasticWorker* worker : all) EXPECT_THAT(worker->how.lost, ::testing::IsEmpty());
  on_each(all, [&](ElasticWorker& worker) { EXPECT_EQ(step(worker, 2).participants, 3u); });
  EXPECT_TRUE(same_bits(a.values, b.values));
}

// The same, and c is killed then: that loss alone is reported.
TEST(ReturningMembers, AndWhoIsNotAliveIs) {
  Graves graves;
  ElasticWorker a(0), b(1), c(2);
  const std::vector<ElasticWorker*> all{&a, &b, &c};
  regroup(all, 1, kSparse);
  on_each(all, [&](ElasticWorker& worker) { step(worker, 0); });
  const int transfers = transfers_of_last(all, 2, graves);
  on_each(all, [&](ElasticWorker& worker) { step(worker, 1); });
  const double owed = c.store.owed_norm();
  EXPECT_GT(owed, 0);
  ASSERT_EQ(try_to_regroup(all, 3, transfers - 1, true, graves),
            (std::vector<bool>{true, false, false}));
  ASSERT_EQ(try_to_regroup(all, 4, 0, false, graves), std::vector<bool>(3));
  regroup({&b, &a}, 5, kSparse);
  for (const ElasticWorker* worker : {&a, &b}) {
    ASSERT_EQ(worker->how.lost.size(), 1u);
    EXPECT_EQ(worker->how.lost[0].generation, 3u);
    EXPECT_EQ(worker->how.lost[0].rank, 2);
    EXPECT_EQ(worker->how.lost[0].owed, owed);
  }
}

// d comes with a store of its own, and its exchange is another one each time.
TEST(ReturningMembers, WhoseFirstJoinFailedIsNotLost) {
  int transfers = 0;
  {
    Graves graves;
    ElasticWorker a(0), b(1), d(3);
    regroup({&a, &b}, 1, kSparse);
    on_each({&a, &b}, [&](ElasticWorker& worker) { step(worker, 0); });
    transfers = transfers_of_last({&a, &b, &d}, 2, graves);
  }
  Graves graves;
  ElasticWorker a(0), b(1), d(3);
  regroup({&a, &b}, 1, kSparse);
  on_each({&a, &b}, [&](ElasticWorker& worker) { step(worker, 0); });
  ASSERT_EQ(try_to_regroup({&a, &b, &d}, 2, transfers - 1, true, graves),
            (std::vector<bool>{true, false, false}));
  EXPECT_EQ(d.exchange, nullptr);
  regroup({&a, &b, &d}, 3, kSparse);
  for (const ElasticWorker* worker : {&a, &b, &d}) {
    EXPECT_THAT(worker->how.lost, ::testing::IsEmpty());
    EXPECT_EQ(worker->how.takes_over, worker == &d);
  }
  on_each({&a, &b, &d},
          [&](ElasticWorker& worker) { EXPECT_EQ(step(worker, 1).participants, 3u); });
  EXPECT_TRUE(same_bits(a.values, d.values));
}

TEST(ReturningMembers, EveryStoreHasAnIdentityOfItsOwn) {
  const Store one, other;
  EXPECT_NE(one.identity(), 0u);
  EXPECT_NE(one.identity(), other.identity());
}

}  // namespace
}  // namespace thinwire::testing
