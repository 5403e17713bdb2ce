// Held steps: means are given at once, and memories follow later, or not.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

TEST(ExchangeHold, AHeldStepIsTakenBackToTheBit) {
  for (const ExchangeOptions& usual : codecs_and_methods(2)) {
    ExchangeOptions options = usual;
    options.hold = true;
    ExchangeOptions plain = usual;
    run_local(2, [&](Group& group) {
      Side held(group, small_model(), options), free(group, small_model(), plain);
      held.step(0);
      EXPECT_THAT(error_of([&] { held.start(0); }), HasSubstr("settle"));
      EXPECT_THAT(error_of([&] { held.exchange().finish(); }), HasSubstr("settle"));
      EXPECT_THAT(error_of([&] { held.exchange().set_weighted(true); }), HasSubstr("settle"));
      EXPECT_THAT(error_of([&] { held.exchange().set_momentum({}); }), HasSubstr("settle"));
      EXPECT_THAT(error_of([&] { held.exchange().set_step(7); }), HasSubstr("settle"));
      held.exchange().settle(true);
      free.step(0);
      EXPECT_TRUE(same_bits(held.values, free.values)) << usual.codec << " " << usual.method;
      EXPECT_TRUE(same_state(held.store().save(), free.store().save())) << usual.codec;
      const StateArrays before = held.store().save();
      held.step(1);
      held.exchange().settle(false);
      EXPECT_TRUE(same_state(held.store().save(), before)) << usual.codec << " " << usual.method;
      held.step(2);
      held.exchange().settle(true);
      free.exchange().set_step(2);
      free.step(2);
      EXPECT_TRUE(same_bits(held.values, free.values)) << usual.codec << " " << usual.method;
    });
  }
}

TEST(ExchangeHold, AHeldStepThatIsTakenBackHasNotCountedForWhoJoined) {
  const ExchangeOptions options{.codec = "topk:density=0.05", .method = "gather", .hold = true};
  ElasticWorker a(0), b(1), c(2);
  const std::vector<ElasticWorker*> all = {&a, &b, &c};
  regroup({&a, &b}, 1, options);
  for (const bool counts : {false, true}) {
    regroup(all, counts ? 3 : 2, options);
    EXPECT_TRUE(c.how.takes_over) << counts;
    on_each(all, [&](ElasticWorker& worker) {
      EXPECT_FALSE(step(worker, 0).skipped);
      worker.exchange->settle(counts);
    });
  }
  regroup(all, 4, options);
  EXPECT_FALSE(c.how.takes_over);
}

TEST(ExchangeHold, WhatCannotBeHeldIsRefused) {
  ExchangeOptions options{.codec = "topk", .feedback = "ef21", .hold = true};
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("ef21"));
  options = {.codec = "topk:density=accordion(0.1;0.01)", .steps_per_epoch = 10, .hold = true};
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("accordion"));
  options = {.codec = "topk", .inside = 2, .hold = true};
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("inside = 1"));
}

}  // namespace
}  // namespace thinwire::testing
