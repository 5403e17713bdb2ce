// Tests of steps that failed on some ranks: all others count them or none, and what nobody counted
// leaves no trace.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/three_workers.h"

namespace thinwire::testing {
namespace {

// c dies at each of its transfers in turn, the last of which are those of the agreement.
TEST(FailedSteps, AStepThatOneRankLostCountsOnAllOthersOrOnNone) {
  const int transfers = Three(kSparse).in_step;
  ASSERT_GT(transfers, 8);
  for (int dies_at = 0; dies_at < transfers; ++dies_at) {
    Three three(kSparse);
    three.life->transfers = dies_at;
    const auto counted = three.last_step();
    ASSERT_FALSE(counted[2]) << dies_at;
    regroup({&three.a, &three.b}, 2, kSparse);
    const bool any = counted[0] || counted[1];
    for (const ElasticWorker* worker : {&three.a, &three.b}) {
      EXPECT_EQ(worker->how.step, any ? 3u : 2u);
      EXPECT_EQ(worker->how.ended.has_value(), any && !counted[static_cast<size_t>(worker->id)]);
      EXPECT_FALSE(worker->how.takes_over);
      ASSERT_EQ(worker->how.lost.size(), 1u);
      EXPECT_EQ(worker->how.lost[0].rank, 2);
    }
    EXPECT_TRUE(same_bits(three.a.values, three.b.values)) << dies_at;
    for (const Values& values : three.a.values) {
      if (!any) {
        EXPECT_THAT(values, ::testing::Each(0.0f));
      }
    }
    on_each({&three.a, &three.b}, [&](ElasticWorker& worker) {
      EXPECT_EQ(step(worker, worker.how.step).participants, 2u);
    });
    EXPECT_TRUE(same_bits(three.a.values, three.b.values)) << dies_at;
  }
}

// c dies silently before the last transfer of the agreement: a does not need it, and b waits for it
// in vain.
TEST(FailedSteps, WhoVotedTakesTheVerdictOfThoseThatHaveIt) {
  Three three(kSparse, std::chrono::seconds(2));
  three.life->silent = true;
  three.life->transfers = three.in_step - 1;
  ASSERT_EQ(three.last_step(), (std::vector<bool>{true, false, false}));
  const Tensors means = three.a.values;
  regroup({&three.b, &three.a}, 2, kSparse);
  ASSERT_TRUE(three.b.how.ended);
  EXPECT_FALSE(three.b.how.ended->skipped);
  EXPECT_FALSE(three.a.how.ended);
  EXPECT_TRUE(same_bits(three.b.values, means));

  // b's memory is what it would be without the loss, multiplied for two ranks instead of three.
  Three whole(kSparse);
  ASSERT_EQ(whole.last_step(), (std::vector<bool>{true, true, true}));
  const auto expected = arrays_of(whole.b.store, "/residual");
  const auto found = arrays_of(three.b.store, "/residual");
  for (const auto& [name, values] : expected)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(found.at(name)[i], static_cast<float>(values[i] * (2.0 / 3.0))) << name;
}

// A step that nobody counted is taken back to the bit.
TEST(FailedSteps, AStepThatNobodyCountedLeavesNoTrace) {
  for (const char* feedback : {"residual", "dgc:momentum=0.9", "loco"}) {
    ExchangeOptions options = kSparse;
    options.feedback = feedback;
    Three three(options);
    std::vector<StateArrays> before;
    for (const ElasticWorker* worker : {&three.a, &three.b}) before.push_back(worker->store.save());
    three.life->transfers = 3;
    ASSERT_EQ(three.last_step(), std::vector<bool>(3));
    three.a.exchange->settle(false);
    three.b.exchange->settle(false);
    EXPECT_TRUE(same_state(three.a.store.save(), before[0])) << feedback;
    EXPECT_TRUE(same_state(three.b.store.save(), before[1])) << feedback;
    regroup({&three.a, &three.b}, 2, options);
    on_each({&three.a, &three.b}, [&](ElasticWorker& worker) { step(worker, 2); });
    EXPECT_TRUE(same_bits(three.a.values, three.b.values));
  }
}

// The step that fails is the last of its phase: the codec changes after it.
TEST(FailedSteps, AStepThatIsRepeatedHasTheEncodersThatItHad) {
  ExchangeOptions options = kSparse;
  options.codec = "lgc:density=0.05,train=true | 3steps: lgc:density=0.05";
  options.method = "auto";
  Three three(options);
  const auto before = arrays_of(three.a.store, "/matrix");
  ASSERT_FALSE(before.empty());
  three.life->transfers = 3;
  ASSERT_EQ(three.last_step(), std::vector<bool>(3));
  regroup({&three.a, &three.b}, 2, options);
  for (const ElasticWorker* worker : {&three.a, &three.b})
    EXPECT_EQ(arrays_of(worker->store, "/matrix"), before);
  for (const uint64_t number : {2, 3})
    on_each({&three.a, &three.b}, [&](ElasticWorker& worker) { step(worker, number); });
  EXPECT_TRUE(same_bits(three.a.values, three.b.values));
}

// Those in a bucket that had not begun when the step failed, too: it lacks the model's first tensor.
TEST(FailedSteps, AllTensorsOfAStepThatIsTakenBackBecomeZero) {
  ExchangeOptions options = kSparse;
  options.bucket_bytes = 2048;  // the first tensor is in the second bucket, with six others
  Three three(options);
  three.life->transfers = 0;
  on_each(three.all, [&](ElasticWorker& worker) {
    worker.values = gradients(small_model(), worker.id, 2);
    Ticket ticket{};
    EXPECT_THROW(
        {
          for (size_t i = worker.values.size(); i-- > 1;)
            ticket = worker.exchange->start(
                i, {.data = worker.values[i].data(), .count = worker.values[i].size()});
          worker.exchange->wait(ticket);
        },
        Error);
  });
  for (ElasticWorker* worker : {&three.a, &three.b}) {
    worker->exchange->settle(false);
    for (size_t i = 1; i < worker->values.size(); ++i)
      EXPECT_EQ(worker->values[i], Values(worker->values[i].size())) << worker->id << " " << i;
  }
}

}  // namespace
}  // namespace thinwire::testing
