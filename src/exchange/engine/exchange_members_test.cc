// Tests of exchanges whose ranks change: joining, leaving, coming back, and what is told of the lost.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <utility>

#include "exchange/testing/elastic_workers.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/three_workers.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

// What workers owe to the mean together: of each value, the sum of residuals divided by their
// number.
std::map<std::string, std::vector<double>> owed_to_mean(
    const std::vector<ElasticWorker*>& workers) {
  std::map<std::string, std::vector<double>> owed;
  for (const ElasticWorker* worker : workers)
    for (const auto& [name, values] : arrays_of(worker->store, "/residual")) {
      auto& sum = owed[name];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        sum[i] += values[i] / static_cast<double>(workers.size());
    }
  return owed;
}

TEST(ExchangeMembers, WhoJoinsOwesNothingAndWhatIsOwedToTheMeanStays) {
  ElasticWorker a(0), b(1), c(2);
  regroup({&a, &b}, 1, kSparse);
  EXPECT_FALSE(a.how.takes_over);
  for (uint64_t number = 0; number < 3; ++number)
    on_each({&a, &b}, [&](ElasticWorker& worker) { step(worker, number); });
  const auto before = owed_to_mean({&a, &b});
  ASSERT_FALSE(before.empty());

  regroup({&c, &a, &b}, 2, kSparse);
  EXPECT_TRUE(c.how.takes_over);
  EXPECT_EQ(c.how.source, 1);
  EXPECT_EQ(c.how.step, 3u);
  EXPECT_FALSE(a.how.takes_over || b.how.takes_over);
  for (const auto& [name, values] : arrays_of(c.store, "/residual"))
    EXPECT_THAT(values, ::testing::Each(0.0f)) << name;
  const auto after = owed_to_mean({&a, &b, &c});
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, values] : before)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(after.at(name)[i], values[i], 1e-7) << name << " " << i;

  on_each({&a, &b, &c}, [&](ElasticWorker& worker) {
    const StepReport report = step(worker, 3);
    EXPECT_EQ(report.step, 3u);
    EXPECT_EQ(report.participants, 3u);
    EXPECT_FALSE(report.skipped);
  });
  EXPECT_TRUE(same_bits(a.values, b.values));
  EXPECT_TRUE(same_bits(a.values, c.values));
}

// By gather each rank has factors of its own, and who joins has none.
TEST(ExchangeMembers, WhoJoinsRanksThatShareNothingSharesNothing) {
  const ExchangeOptions options{.codec = "powersgd:rank=1", .method = "gather"};
  Three three(options);
  ElasticWorker d(3);
  regroup({&three.a, &three.b, &three.c, &d}, 2, options);
  on_each({&three.a, &three.b, &three.c, &d}, [](ElasticWorker& worker) { step(worker, 2); });
  EXPECT_TRUE(same_bits(three.a.values, d.values));
}

// It is behind: c did not see steps that counted on a and b.
TEST(ExchangeMembers, WhoComesBackKeepsItsMemoryAndTakesWhatIsShared) {
  ExchangeOptions options{.codec = "powersgd:rank=1"};
  Three three(options);
  const auto own = arrays_of(three.c.store, "/residual");
  regroup({&three.a, &three.b}, 2, options);
  on_each({&three.a, &three.b}, [&](ElasticWorker& worker) { step(worker, 2); });
  regroup(three.all, 3, options);
  EXPECT_TRUE(three.c.how.takes_over);
  EXPECT_EQ(three.c.how.source, 0);
  EXPECT_EQ(three.c.how.step, 3u);
  EXPECT_TRUE(three.a.how.lost.empty());
  for (const auto& [name, values] : arrays_of(three.c.store, "/residual"))
    EXPECT_EQ(values, own.at(name)) << name;
  EXPECT_TRUE(same_state(three.a.store.save_shared(), three.c.store.save_shared()));
  EXPECT_FALSE(three.a.store.save_shared().empty());
  on_each(three.all, [&](ElasticWorker& worker) { step(worker, 3); });
  EXPECT_TRUE(same_bits(three.a.values, three.c.values));
}

// ef21: H is the mean of the ranks' estimates, also after ranks went and came.
TEST(ExchangeMembers, EstimatesOfRanksThatAreGoneDoNotStayInTheMean) {
  ExchangeOptions options{.codec = "topk:density=0.2", .feedback = "ef21", .method = "gather"};
  Three three(options);
  ElasticWorker d(7);
  regroup({&three.a, &d, &three.b}, 2, options);
  EXPECT_TRUE(d.how.takes_over);
  on_each({&three.a, &d, &three.b}, [&](ElasticWorker& worker) { step(worker, 2); });
  const auto mean = arrays_of(three.a.store, "/mean_estimate");
  std::map<std::string, std::vector<double>> sums;
  for (const ElasticWorker* worker : {&three.a, &d, &three.b})
    for (const auto& [name, values] : arrays_of(worker->store, "/estimate")) {
      auto& sum = sums[name];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / 3.0;
    }
  ASSERT_EQ(sums.size(), mean.size());
  for (const auto& [name, values] : mean) {
    const auto& sum = sums.at(name.substr(0, name.rfind('/')) + "/estimate");
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(sum[i], values[i], 1e-6) << name;
  }
}

// What owners owe is dealt out anew, and goes to the mean as it stands.
TEST(ExchangeMembers, WhatOwnersOweIsKeptWhenShardsMove) {
  ExchangeOptions options{.codec = "onebit", .method = "scatter-reduce", .chunk_values = 64};
  Three three(options);
  const auto add_up = [&](const std::vector<ElasticWorker*>& workers) {
    std::map<std::string, Values> sums;
    for (const ElasticWorker* worker : workers)
      for (const TensorSpec& tensor : small_model()) {
        const auto own = owed_by_owner(worker->store.save(), tensor.name, tensor.count());
        if (!own) continue;
        auto& sum = sums[tensor.name];
        sum.resize(own->size());
        for (size_t i = 0; i < own->size(); ++i) sum[i] += (*own)[i];
      }
    return sums;
  };
  const auto before = add_up(three.all);
  ASSERT_FALSE(before.empty());
  ElasticWorker d(3);
  regroup({&three.a, &three.b, &three.c, &d}, 2, options);
  const auto after = add_up({&three.a, &three.b, &three.c, &d});
  for (const auto& [name, values] : before) EXPECT_EQ(after.at(name), values) << name;

  // Where they stray, they count as many times as there are ranks.
  const auto shares = owed_to_mean({&three.a, &three.b, &three.c, &d});
  std::vector<ElasticWorker*> four{&three.a, &three.b, &three.c, &d};
  on_each(four, [&](ElasticWorker& worker) { step(worker, 2); });
  std::map<std::string, std::vector<double>> rest = owed_to_mean(four);
  const auto left = add_up(four);
  for (const auto& [name, values] : left) {
    const std::vector<TensorSpec> model = small_model();
    size_t at = 0;
    while (model[at].name != name) ++at;
    const std::string key = name + "/feedback/residual";
    for (size_t i = 0; i < values.size(); ++i) {
      double given = shares.at(key)[i] + before.at(name)[i];
      for (const ElasticWorker* worker : four) given += gradient(model[at], worker->id, 2)[i] / 4.0;
      const double got = three.a.values[at][i] + rest.at(key)[i] + values[i];
      ASSERT_NEAR(got, given, 1e-6) << name << " " << i;
    }
  }
}

// c leaves in order: nothing is lost, and nothing is owed twice when it comes back with its store.
TEST(ExchangeMembers, WhoLeavesHandsOverWhatItOwes) {
  Three three(kSparse);
  const auto before = owed_to_mean(three.all);
  on_each(three.all,
          [&](ElasticWorker& worker) { worker.exchange->hand_over(&worker == &three.c); });
  const auto expect_unchanged = [&](const std::vector<ElasticWorker*>& workers) {
    const auto after = owed_to_mean(workers);
    for (const auto& [name, values] : before)
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(after.at(name)[i], values[i], 1e-7);
  };
  regroup({&three.a, &three.b}, 2, kSparse);
  expect_unchanged({&three.a, &three.b});
  EXPECT_TRUE(three.a.how.lost.empty());
  EXPECT_EQ(three.c.store.owed_norm(), 0);
  three.c.exchange.reset();
  regroup(three.all, 3, kSparse);
  expect_unchanged(three.all);
}

// Of shards, which others may have in the meantime.
TEST(ExchangeMembers, WhoLeavesKeepsNothingOfWhatOwnersOwe) {
  Three three({.codec = "onebit", .method = "scatter-reduce", .chunk_values = 64});
  ASSERT_GT(three.c.store.owed_norm(), 0);
  on_each(three.all,
          [&](ElasticWorker& worker) { worker.exchange->hand_over(&worker == &three.c); });
  EXPECT_EQ(three.c.store.owed_norm(), 0);
}

TEST(ExchangeMembers, SomebodyMustStay) {
  Three three(kSparse);
  on_each(three.all, [&](ElasticWorker& worker) {
    EXPECT_THAT(error_of([&] { worker.exchange->hand_over(true); }), HasSubstr("all ranks leave"));
  });
}

// What was lost is what was last counted.
TEST(ExchangeMembers, WhatTheLostOwedIsReported) {
  Three three(kSparse);
  regroup(three.all, 2, kSparse);
  const double owed = three.c.store.owed_norm();
  EXPECT_GT(owed, 0);
  on_each(three.all, [&](ElasticWorker& worker) { step(worker, 2); });
  regroup({&three.b, &three.a}, 3, kSparse);
  for (const ElasticWorker* worker : {&three.a, &three.b}) {
    ASSERT_EQ(worker->how.lost.size(), 1u);
    EXPECT_EQ(worker->how.lost[0].rank, 2);
    EXPECT_EQ(worker->how.lost[0].owed, owed);
    EXPECT_EQ(worker->how.lost[0].step, 2u);
    EXPECT_EQ(worker->how.step, 3u);
  }
}

ExchangeOptions with_debts(ExchangeOptions options) {
  options.debts = true;
  return options;
}

// As of the last step, in which ranks told each other.
TEST(ExchangeMembers, WhatIsOwedIsToldInEveryStep) {
  for (const bool weighted : {false, true}) {
    ExchangeOptions options = with_debts(kSparse);
    options.weighted = weighted;
    Three three(options);
    double of_c = 0;
    for (uint64_t number = 2; number < 5; ++number) {
      std::vector<double> owed;
      for (const ElasticWorker* worker : three.all) owed.push_back(worker->store.owed_norm());
      EXPECT_GT(owed[2], 0);
      of_c = owed[2];
      on_each(three.all, [&](ElasticWorker& worker) {
        if (weighted && worker.id == 1) worker.exchange->abstain(Abstention::kSitsOut);
        EXPECT_EQ(step(worker, number).owed, owed);
      });
    }
    regroup({&three.b, &three.a}, 2, options);
    for (const ElasticWorker* worker : {&three.a, &three.b}) {
      ASSERT_EQ(worker->how.lost.size(), 1u);
      EXPECT_EQ(worker->how.lost[0].rank, 2);
      EXPECT_EQ(worker->how.lost[0].owed, of_c);
      EXPECT_EQ(worker->how.lost[0].step, 4u);
      EXPECT_EQ(worker->how.lost[0].generation, 1u);
      EXPECT_EQ(worker->how.step, 5u);
    }
  }
}

// c dies at each of its transfers in turn, so that its last word reaches both, one, or none.
TEST(ExchangeMembers, MembersReportTheSameDebtWhicheverHeardOfIt) {
  const ExchangeOptions options = with_debts(kSparse);
  const int transfers = Three(options).in_step;
  std::set<uint64_t> told;
  for (int dies_at = 0; dies_at < transfers; ++dies_at) {
    Three three(options);
    const double before = three.c.store.owed_norm();
    three.life->transfers = dies_at;
    ASSERT_FALSE(three.last_step()[2]);
    regroup({&three.b, &three.a}, 2, options);
    ASSERT_EQ(three.a.how.lost.size(), 1u);
    ASSERT_EQ(three.b.how.lost.size(), 1u);
    const thinwire::LostRank &lost = three.a.how.lost[0], &other = three.b.how.lost[0];
    EXPECT_EQ(lost.owed, other.owed) << dies_at;
    EXPECT_EQ(lost.step, other.step) << dies_at;
    if (lost.step == 2) {
      EXPECT_EQ(lost.owed, before) << dies_at;
    } else {
      EXPECT_EQ(lost.step, 1u);  // what it told in the step before
      EXPECT_NE(lost.owed, before);
    }
    told.insert(lost.step);
  }
  EXPECT_EQ(told.size(), 2u);
}

// d is lost between steps, c at each of its transfers while the others come together: some of them
// may have come into a group that others did not. Which of them did depends on their threads, so it
// is looked for more than once.
TEST(ExchangeMembers, EveryLossIsReportedOnAllAndNoOther) {
  bool some_came = false;
  for (int dies_at = 0, rounds = 0; rounds == 0 || (!some_came && rounds < 20); ++dies_at) {
    std::vector<std::unique_ptr<Group>> groups;
    Three three(kSparse);
    ElasticWorker d(3);
    std::vector<ElasticWorker*> four = {&three.a, &three.b, &three.c, &d};
    regroup(four, 2, kSparse);
    on_each(four, [&](ElasticWorker& worker) { step(worker, worker.how.step); });

    three.life = std::make_shared<Life>();
    three.life->transfers = dies_at;
    groups = make_local_groups(3);
    groups[2] = std::make_unique<FrailGroup>(std::move(groups[2]), three.life);
    std::array<bool, 3> came{};
    on_each(three.all, [&](ElasticWorker& worker) {
      const auto i = static_cast<size_t>(worker.id);
      came[i] = error_of([&] { worker.how = worker.exchange->regroup(*groups[i], 3); }).empty();
      if (!came[i]) groups[i]->abort("regroup failed");
    });
    if (came[2]) {  // it used all its transfers
      ++rounds;
      dies_at = -1;
      continue;
    }
    some_came = some_came || came[0] != came[1];
    regroup({&three.b, &three.a}, 4, kSparse);
    for (const ElasticWorker* worker : {&three.a, &three.b}) {
      std::vector<std::pair<uint32_t, int>> lost;
      for (const thinwire::LostRank& one : worker->how.lost)
        lost.emplace_back(one.generation, one.rank);
      const uint32_t last = came[0] || came[1] ? 3 : 2;
      EXPECT_THAT(lost, ::testing::UnorderedElementsAre(std::pair(2u, 3), std::pair(last, 2)))
          << dies_at;
    }
    on_each({&three.a, &three.b}, [&](ElasticWorker& worker) { step(worker, worker.how.step); });
    regroup({&three.a, &three.b}, 5, kSparse);
    EXPECT_TRUE(three.a.how.lost.empty()) << "a step has counted since";
  }
  EXPECT_TRUE(some_came);
}

// It was given up, and comes back before a step has counted.
TEST(ExchangeMembers, WhoComesBackIsNotLost) {
  Three three(kSparse);
  regroup({&three.a, &three.b}, 2, kSparse);
  EXPECT_EQ(three.a.how.lost.size(), 1u);
  regroup(three.all, 3, kSparse);
  for (const ElasticWorker* worker : three.all) EXPECT_TRUE(worker->how.lost.empty());
}

TEST(ExchangeMembers, DebtsAreRefusedWhereRanksDoNotHaveThem) {
  ExchangeOptions options = with_debts(kSparse);
  options.inside = 2;
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("debts = false"));
  options.inside = 1;
  options.columns = 2;
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("debts = false"));
}

TEST(ExchangeMembers, MistakesAreThrownOnAllAndAnotherGroupMayFollow) {
  Three three(kSparse);
  ElasticWorker d(3);
  ExchangeOptions other = kSparse;
  other.seed = 9;
  auto groups = make_local_groups(3);
  const std::vector<ElasticWorker*> with_d{&three.a, &three.b, &d};
  std::map<ElasticWorker*, Group*> of;
  for (size_t i = 0; i < 3; ++i) of[with_d[i]] = groups[i].get();
  on_each(with_d, [&](ElasticWorker& worker) {
    const std::string error = error_of([&] {
      other.generation = 2;
      if (&worker == &d) {
        ExchangeOptions own = other;
        join_exchange(*of.at(&worker), worker.store, small_model(), own);
      } else {
        worker.exchange->regroup(*of.at(&worker), 2);
      }
    });
    EXPECT_THAT(error, HasSubstr("'seed 9' on rank 2"));
  });
  auto again = make_local_groups(2);
  on_each({&three.a, &three.b}, [&](ElasticWorker& worker) {
    const std::string error =
        error_of([&] { worker.exchange->regroup(*again[static_cast<size_t>(worker.id)], 1); });
    EXPECT_THAT(error, HasSubstr("generation 1 does not follow generation 1"));
  });
  regroup({&three.a, &three.b}, 2, kSparse);
  on_each({&three.a, &three.b}, [&](ElasticWorker& worker) { step(worker, 2); });
  EXPECT_TRUE(same_bits(three.a.values, three.b.values));
}

TEST(ExchangeMembers, AHierarchyDoesNotRegroup) {
  ExchangeOptions options = kSparse;
  options.inside = 2;
  run_local(2, [&](Group& group) {
    Side side(group, small_model(), options);
    EXPECT_THAT(error_of([&] { side.exchange().regroup(group, 2); }), HasSubstr("inside = 1"));
  });
}

// Frames of an earlier group, where channels are the same.
TEST(ExchangeMembers, FramesCarryTheEpoch) {
  Three three(kSparse);
  regroup(three.all, 70000, kSparse);
  EXPECT_EQ(three.a.exchange->options().generation, 70000u);
}

}  // namespace
}  // namespace thinwire::testing
