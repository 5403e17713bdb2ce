// Tests of streaming's options, and that workers step on while a round is under way.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "sync/testing/sync_testing.h"
#include "thinwire/state.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

auto with_options(const std::string& options) {
  return [options] {
    run_local(2, [&](Group& group) { Worker(group, {.method = "streaming:" + options}); });
  };
}

TEST(Streaming, RefusesWhatDoesNotFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"tau=4,delay=4", "delay is 4 and tau 4: a fragment's round must end before its next"},
      {"tau=1,delay=1", "delay is 1 and tau 1"},
      {"tau=1,fragments=2", "fragments is 2, but tau is 1"},
      {"tau=9,fragments=3", "fragments is 3, but the model has 2 layers"},
      {"mix=1.5", "'mix' is '1.5'"},
      {"delay=-1", "'delay' is '-1'"},
      {"order=random", "strided, sequential"},
      {"fragment=2", "unknown option 'fragment'"}};
  for (const auto& [options, why] : cases)
    EXPECT_THAT(with_options(options), ThrowsMessage<Error>(HasSubstr(why))) << options;
  for (const char* options : {"tau=1", "tau=2,fragments=2,delay=1,mix=1", "order=sequential"})
    EXPECT_NO_THROW(with_options(options)()) << options;
}

TEST(Streaming, TellsRanksThatDiffer) {
  const auto differ = [] {
    run_local(3, [](Group& group) {
      const std::string mix = group.rank() == 2 ? "0.5" : "0.25";
      Worker(group, {.method = "streaming:tau=4,mix=" + mix});
    });
  };
  EXPECT_THAT(differ, ThrowsMessage<Error>(HasSubstr("mix=0.5")));
}

// Rank 0 takes three steps beyond the one in which a round begins before rank 1 takes that one.
TEST(Streaming, AWorkerStepsOnWhileARoundIsUnderWay) {
  std::latch ahead(1);
  run_local(2, [&](Group& group) {
    Worker worker(group, {.method = "streaming:tau=6,fragments=1,delay=4"});
    for (int step = 1; step <= 5; ++step) worker.step();
    if (group.rank() == 1) ahead.wait();
    for (int step = 6; step <= 9; ++step) EXPECT_FALSE(worker.step());
    if (group.rank() == 0) ahead.count_down();
    const auto report = worker.step();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->begun, 6u);
  });
}

// The end of a run, in which a round may be under way.
TEST(Streaming, WorkersEndWhileARoundIsUnderWay) {
  for (const std::string codec : {"fp32", "topk:density=0.1"})
    EXPECT_NO_THROW(run_local(3, [&](Group& group) {
      Worker worker(group, {.method = "streaming:tau=3,fragments=2,delay=2", .codec = codec});
      for (int step = 0; step < 3; ++step) worker.step();
    }));
}

// Layers "0" to "3", of one tensor each.
std::vector<TensorSpec> four_layers() {
  std::vector<TensorSpec> tensors;
  for (const char* layer : {"0", "1", "2", "3"})
    tensors.push_back({std::string(layer) + ".weight", {3, 2}, TensorKind::kLinear});
  return tensors;
}

// Of one worker with the first tensors, after two steps; `store` goes on.
StateArrays state_of(const std::string& options, const std::vector<TensorSpec>& tensors,
                     Store& store) {
  const auto group = std::move(make_local_groups(1)[0]);
  std::vector<float> x = start_values(6 * tensors.size());
  const auto sync =
      make_synchroniser(*group, store, tensors, x, {.method = "streaming:tau=4," + options});
  for (int step = 0; step < 2; ++step) sync->after_step(x, 0);
  return store.save();
}

TEST(Streaming, AStateGoesOnWithTheSameFragmentsAlone) {
  Store first;
  const StateArrays saved = state_of("fragments=2,order=strided", four_layers(), first);
  const auto go_on = [&](const std::string& options, const std::vector<TensorSpec>& tensors) {
    return [&saved, options, tensors] {
      Store store;
      store.load({saved}, 0, 1).or_throw();
      state_of(options, tensors, store);
    };
  };
  EXPECT_NO_THROW(go_on("fragments=2,order=strided,rate=0.5", four_layers())());
  EXPECT_THAT(go_on("fragments=2,order=sequential", four_layers()),
              ThrowsMessage<Error>(AllOf(HasSubstr("tensor '1.weight' is in fragment 0"),
                                         HasSubstr("it is in fragment 1"),
                                         HasSubstr("order was strided and is sequential"))));
  EXPECT_THAT(go_on("fragments=3", four_layers()),
              ThrowsMessage<Error>(HasSubstr("is of 2 fragments, and there are 3 now")));
  auto tensors = four_layers();
  tensors[2].name = "2.other";
  EXPECT_THAT(
      go_on("fragments=2", tensors),
      ThrowsMessage<Error>(HasSubstr("tensor '2.other', number 2 from 0, had another name")));
  tensors = four_layers();
  tensors[3].shape = {2, 3};
  EXPECT_THAT(
      go_on("fragments=2", tensors),
      ThrowsMessage<Error>(HasSubstr("tensor '3.weight', number 3 from 0, had another name")));
  tensors.pop_back();
  EXPECT_THAT(go_on("fragments=2", tensors),
              ThrowsMessage<Error>(HasSubstr("is of 4 tensors, and the model has 3")));
}

TEST(Streaming, NumbersThatNoRoundWritesAreRefused) {
  Store first;
  const StateArrays saved = state_of("fragments=2", four_layers(), first);
  const double numbers[] = {std::nan(""), 1e300, -1, 0.5, -std::numeric_limits<double>::infinity()};
  for (const double number : numbers)
    for (size_t at = 0; at < 20; ++at) {
      StateArrays changed = saved;
      const auto found = std::find_if(changed.begin(), changed.end(), [](const StateArray& array) {
        return array.name.ends_with("/rounds");
      });
      ASSERT_NE(found, changed.end());
      ASSERT_EQ(found->data.size(), 20 * sizeof(double));
      std::memcpy(found->data.data() + at * sizeof(double), &number, sizeof(double));
      std::erase_if(changed, is_seal);
      seal_state(changed);
      const auto load = [&] {
        Store store;
        store.load({changed}, 0, 1).or_throw();
        state_of("fragments=2", four_layers(), store);
      };
      const bool may_be_negative = at % 10 == 1 || at % 10 == 4;  // of a round under way; no rank
      if (number == -1 && may_be_negative) continue;
      EXPECT_THAT(load, ThrowsMessage<Error>(HasSubstr("that no round writes")))
          << at << ' ' << number;
    }
}

// Only with a delay does a state have room for a result that waits.
TEST(Streaming, AStateGoesOnWithAnotherDelayUnlessEitherIsNone) {
  const auto go_on = [](const std::string& before, const std::string& now) {
    return [before, now] {
      Store first, store;
      store.load({state_of(before, four_layers(), first)}, 0, 1).or_throw();
      const auto group = std::move(make_local_groups(1)[0]);
      const std::vector<float> x = start_values(24);
      make_synchroniser(*group, store, four_layers(), x, {.method = "streaming:" + now});
    };
  };
  EXPECT_NO_THROW(go_on("fragments=1,delay=1", "tau=4,fragments=1,delay=2")());
  EXPECT_THAT(go_on("fragments=1", "tau=4,fragments=1,delay=2"),
              ThrowsMessage<Error>(HasSubstr("'arrived'")));
  EXPECT_THAT(go_on("fragments=2,delay=1", "tau=8,fragments=2,delay=1"),
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("a round since step 2"), HasSubstr("delay not from 0 or to 0"))));
}

// Of two layers each is a fragment, in either order.
TEST(Streaming, OrdersThatComeToTheSameMayChange) {
  Store first;
  auto tensors = four_layers();
  tensors.resize(2);
  const StateArrays saved = state_of("fragments=2,order=strided", tensors, first);
  Store store;
  store.load({saved}, 0, 1).or_throw();
  EXPECT_NO_THROW(state_of("fragments=2,order=sequential", tensors, store));
}

// Also in the store of a synchroniser that is made anew, and of a state that says nothing of its
// cut, as earlier ones.
TEST(Streaming, AStoreThatIsUsedAgainHasItsCut) {
  Store store;
  StateArrays saved = state_of("fragments=2,order=strided", four_layers(), store);
  EXPECT_THAT([&] { state_of("fragments=2,order=sequential", four_layers(), store); },
              ThrowsMessage<Error>(HasSubstr("order was strided and is sequential")));
  EXPECT_NO_THROW(state_of("fragments=2,order=strided", four_layers(), store));

  std::erase_if(saved, [](const StateArray& array) {
    return is_seal(array) || array.name.starts_with("sync/streaming/cut/");
  });
  Store earlier;
  earlier.load({saved}, 0, 1).or_throw();
  EXPECT_NO_THROW(state_of("fragments=2,order=strided", four_layers(), earlier));
  for (const StateArray& array : earlier.save())
    if (array.name == "sync/streaming/cut/fragments") return;
  FAIL() << "the state does not say how the model is cut";
}

StateArrays copy_without_seal(Store& store) {
  StateArrays arrays = store.save();
  std::erase_if(arrays, is_seal);
  return arrays;
}

// Where objects come before the one that refuses, they have taken the state and get their own back.
TEST(Streaming, ARefusedLoadLeavesTheRoundUnderWayWhole) {
  for (const std::string codec : {"fp32", "int8"})
    run_local(2, [&](Group& group) {
      const SynchroniserOptions options{.method = "streaming:tau=6,fragments=1,delay=3",
                                        .codec = codec};
      Worker plain(group, options), worker(group, options);
      StateArrays early;
      for (int step = 1; step <= 18; ++step) {
        const auto expected = plain.step(), found = worker.step();
        ASSERT_EQ(found.has_value(), expected.has_value()) << step;
        ASSERT_TRUE(same_bits(worker.x, plain.x)) << step;
        if (step == 2) {
          early = copy_without_seal(worker.store());
          ASSERT_FALSE(early.empty());
          // The last that has values: of the rule, or of a memory behind it.
          const auto last = std::find_if(early.rbegin(), early.rend(), [](const StateArray& array) {
            return array.data.size() > 64;
          });
          last->shape = {1};
          last->data.resize(size_of(last->type));
        }
        if (step == 7 || step == 14) {
          EXPECT_EQ(worker.store().load({early, early}, group.rank(), 2).code(),
                    ErrorCode::kMismatch);
        }
      }
    });
}

TEST(Streaming, ASettledRoundGoesOnWithAnotherSynchroniserOfTheStore) {
  run_local(2, [&](Group& group) {
    const SynchroniserOptions options{.method = "streaming:tau=6,fragments=1,delay=3"};
    Worker plain(group, options);
    const auto store = std::make_shared<Store>();
    std::vector<float> x;
    {
      Worker worker(group, options, store);
      for (int step = 1; step <= 7; ++step) plain.step(), worker.step();
      store->await_owners();
      x = worker.x;
    }
    Worker worker(group, options, store);
    worker.x = x;
    worker.continue_at(7);
    for (int step = 8; step <= 12; ++step) plain.step(), worker.step();
    EXPECT_TRUE(same_bits(worker.x, plain.x));
  });
}

// Instead of the values that wait there from before.
TEST(Streaming, ARoundThatNeverArrivedIsNotTaken) {
  const auto run = [] {
    run_local(2, [&](Group& group) {
      const SynchroniserOptions options{.method = "streaming:tau=6,fragments=1,delay=3"};
      const auto store = std::make_shared<Store>();
      std::vector<float> x;
      {
        Worker worker(group, options, store);
        for (int step = 1; step <= 7; ++step) worker.step();
        x = worker.x;
      }
      Worker worker(group, options, store);
      worker.x = x;
      worker.continue_at(7);
      worker.step();
      worker.step();
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(HasSubstr("began after step 6 has no result")));
}

// Two rounds are under way at once where the delay is longer than the time from one to the next.
TEST(Streaming, RoundsOfSeveralFragmentsOverlap) {
  run_local(2, [&](Group& group) {
    Worker worker(group, {.method = "streaming:tau=4,fragments=2,delay=3"});
    std::vector<uint64_t> begun;
    for (int step = 0; step < 12; ++step)
      if (const auto report = worker.step()) begun.push_back(report->begun);
    EXPECT_EQ(begun, (std::vector<uint64_t>{2, 4, 6, 8}));
  });
}

}  // namespace
}  // namespace thinwire::testing
