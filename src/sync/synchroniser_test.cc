// Tests of making a synchroniser: options, agreement among ranks, mistakes of callers.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exchange/step/verdict.h"
#include "exchange/testing/crowded_group.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void make(int ranks, const std::function<void(int rank, SynchroniserOptions&)>& change) {
  run_local(ranks, [&](Group& group) {
    SynchroniserOptions options;
    change(group.rank(), options);
    Worker(group, options);
  });
}

auto with_method(const std::string& method) {
  return [method] { make(4, [&](int, SynchroniserOptions& options) { options.method = method; }); };
}

TEST(MakeSynchroniser, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(with_method("leeder"),
              ThrowsMessage<Error>(HasSubstr("unknown synchroniser 'leeder'; known: average,")));
  EXPECT_THAT(with_method("leeder"), ThrowsMessage<Error>(HasSubstr("did you mean 'leader'?")));
  EXPECT_THAT(with_method("leader:tow=3"), ThrowsMessage<Error>(HasSubstr("unknown option 'tow'")));
  EXPECT_THAT(with_method("average:tau=0"), ThrowsMessage<Error>(HasSubstr("'tau' is '0'")));
  EXPECT_THAT(
      [] {
        make(4, [&](int, SynchroniserOptions& options) {
          options.codec = "topk:density=warmup(0.1;4)";
        });
      },
      ThrowsMessage<Error>(HasSubstr("counted in rounds: write its times as steps")));
  EXPECT_THAT(
      [] {
        make(4, [&](int, SynchroniserOptions& options) {
          options.codec = "topk:density=accordion(0.1;0.01;0.5;4steps)";
        });
      },
      ThrowsMessage<Error>(HasSubstr("has an accordion")));
  for (const char* method : {"leader", "gossip"})
    EXPECT_THAT(
        [&] {
          make(4, [&](int, SynchroniserOptions& options) {
            options.method = method;
            options.codec = "fp32 | 4steps: fp16";
          });
        },
        ThrowsMessage<Error>(HasSubstr("keeps to one codec, and 'fp32 | 4steps: fp16'")));
  for (const std::string method : {"leader", "gossip"}) {
    const auto with = [&](std::string SynchroniserOptions::*setting, const char* value) {
      return [=] {
        make(4, [=](int, SynchroniserOptions& options) {
          options.method = method;
          options.*setting = value;
        });
      };
    };
    EXPECT_THAT(with(&SynchroniserOptions::feedback, "dgc"),
                ThrowsMessage<Error>(HasSubstr("synchroniser '" + method +
                                               "': has no memory to choose, and feedback "
                                               "(exchange.feedback) is 'dgc'; choose auto")));
    EXPECT_THAT(with(&SynchroniserOptions::exchange, "gather"),
                ThrowsMessage<Error>(HasSubstr("synchroniser '" + method +
                                               "': has no collective to choose, and exchange "
                                               "(exchange.method) is 'gather'; choose auto")));
  }
}

TEST(MakeSynchroniser, RefusesMoreRanksThanFramesCanName) {
  CrowdedGroup group(kMostRanks + 1);
  Store store;
  EXPECT_THAT([&] { make_synchroniser(group, store, {}, {}, {}); },
              ThrowsMessage<Error>(HasSubstr("room for the numbers of 65534")));
}

// A strength below 0 pushes away, one above 1 overshoots.
TEST(MakeSynchroniser, RefusesPullsThatPushOrOvershoot) {
  for (const std::string option : {"pull=-0.1", "pull=1.1", "pull_global=-1", "pull_global=2"})
    EXPECT_THAT(with_method("leader:" + option), ThrowsMessage<Error>(HasSubstr("from 0 to 1")));
  EXPECT_THAT(with_method("easgd:rate=1.5"), ThrowsMessage<Error>(HasSubstr("from 0 to 1")));
}

TEST(MakeSynchroniser, RefusesPeriodsAndGroupsThatDoNotFit) {
  EXPECT_THAT(with_method("leader:tau=4,tau_global=6"),
              ThrowsMessage<Error>(HasSubstr("tau_global must be a multiple of tau, but is 6")));
  EXPECT_THAT(with_method("leader:tau=4,tau_global=2"),
              ThrowsMessage<Error>(HasSubstr("must be a multiple")));
  EXPECT_THAT(with_method("leader:groups=5"),
              ThrowsMessage<Error>(HasSubstr("5 groups among 4 ranks")));
  EXPECT_THAT(with_method("leader:asynchronous=true,patience=0.0005"),
              ThrowsMessage<Error>(HasSubstr("patience is 5e-04 seconds; choose 0, which waits "
                                             "for all, or 0.001 or more")));
}

TEST(MakeSynchroniser, RefusesCodecsThatGossipCannotUse) {
  const auto run = [] {
    make(2, [](int, SynchroniserOptions& options) {
      options.method = "gossip";
      options.codec = "int8";
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(HasSubstr("codec 'int8' is lossy")));
}

// What a round leaves out is the momentum of sparseloco.
TEST(MakeSynchroniser, RefusesMemoriesThatSparselocoCannotUse) {
  const auto with_memory = [](const std::string& method, const std::string& feedback,
                              const std::string& codec = "topk:density=0.1") {
    return [=] {
      make(2, [&](int, SynchroniserOptions& options) {
        options.method = method;
        options.feedback = feedback;
        options.codec = codec;
      });
    };
  };
  for (const char* feedback : {"residual", "residual:beta=0.9", "none"})
    EXPECT_THAT(with_memory("sparseloco:tau=5,beta=0.95", feedback),
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("beta=0.95 in the method"),
                          HasSubstr("feedback (exchange.feedback) names '" + std::string(feedback)),
                          HasSubstr("leave feedback at auto, or leave beta out"))));
  for (const char* feedback : {"none", "ef21"})
    EXPECT_THAT(with_memory("sparseloco:tau=5", feedback),
                ThrowsMessage<Error>(AllOf(
                    HasSubstr("feedback '" + std::string(feedback) + "' (exchange.feedback)"),
                    HasSubstr("choose auto, residual, lowpass"), HasSubstr("diloco:momentum=0"))));
  EXPECT_NO_THROW(with_memory("sparseloco:tau=5", "residual:beta=0.9")());
  EXPECT_NO_THROW(with_memory("sparseloco:tau=5", "dgc")());
  EXPECT_NO_THROW(with_memory("sparseloco:tau=5,beta=0.95", "auto")());
  EXPECT_NO_THROW(with_memory("sparseloco:tau=5", "none", "fp32")());  // nothing is left out
}

TEST(MakeSynchroniser, TellsRanksThatDiffer) {
  const auto differ = [](const std::function<void(SynchroniserOptions&)>& change) {
    return [change] {
      make(3, [&](int rank, SynchroniserOptions& options) {
        options.method = "leader";
        if (rank == 2) change(options);
      });
    };
  };
  EXPECT_THAT(differ([](auto& options) { options.method = "leader:tau=32"; }),
              ThrowsMessage<Error>(AllOf(HasSubstr("tau=32"), HasSubstr("on rank 2"))));
  EXPECT_THAT(differ([](auto& options) { options.method = "leader:groups=9"; }),
              ThrowsMessage<Error>(HasSubstr("9 groups among 3 ranks")));
  EXPECT_THAT(differ([](auto& options) { options.codec = "int8"; }),
              ThrowsMessage<Error>(HasSubstr("codec int8")));
  EXPECT_THAT(differ([](auto& options) { options.seed = 7; }),
              ThrowsMessage<Error>(HasSubstr("seed 7")));
}

TEST(MakeSynchroniser, TellsRanksThatStartElsewhere) {
  const auto run = [] {
    run_local(3, [](Group& group) {
      Store store;
      const std::vector<float> start(kModelSize, group.rank() == 1 ? 1.0f : 2.0f);
      make_synchroniser(group, store, vector_model(), start, {.method = "leader"});
    });
  };
  EXPECT_THAT(run, ThrowsMessage<Error>(AllOf(HasSubstr("start"), HasSubstr("on rank 1"))));
}

TEST(MakeSynchroniser, RefusesAStoreThatHasTheMemoryOfAnother) {
  const auto make_over = [](Group& group, Store& store, const char* method, const char* codec,
                            size_t values) {
    const std::vector<TensorSpec> model = {{"w", {values}, TensorKind::kOther}};
    make_synchroniser(group, store, model, std::vector<float>(values, 1.0f),
                      {.method = method, .codec = codec});
  };
  struct One {
    const char *method, *codec;
    size_t values;
  };
  const std::pair<One, One> cases[] = {
      {{"average", "fp32", 9}, {"average", "topk:density=0.5", 9}},  // which has an anchor
      {{"diloco:momentum=0", "fp32", 9}, {"diloco", "fp32", 9}},
      {{"diloco", "fp32", 9}, {"diloco", "fp32", 10}},
      {{"leader", "int8", 9}, {"leader", "int8", 10}},
      {{"leader:window=3", "fp32", 9}, {"leader:window=5", "fp32", 9}}};
  for (const auto& [first, second] : cases)
    run_local(2, [&](Group& group) {
      Store store;
      make_over(group, store, first.method, first.codec, first.values);
      EXPECT_NO_THROW(make_over(group, store, first.method, first.codec, first.values));
      EXPECT_THAT([&] { make_over(group, store, second.method, second.codec, second.values); },
                  ThrowsMessage<Error>(HasSubstr("a store of its own")))
          << second.method << ", " << second.codec;
    });
}

TEST(MakeSynchroniser, ListsWhatThereIsWithOptionsThatWork) {
  for (const SynchroniserInfo& info : list_synchronisers()) {
    EXPECT_FALSE(info.summary.empty());
    EXPECT_NO_THROW(with_method(std::string(info.name))()) << info.name;
  }
}

TEST(Synchroniser, ChecksTheLengthOfWhatItIsGiven) {
  run_local(1, [](Group& group) {
    Worker worker(group, {});
    std::vector<float> few(3), out(kModelSize);
    EXPECT_THROW(worker.sync().after_step(few, 1), Error);
    EXPECT_THROW(worker.sync().centre(few, out), Error);
    EXPECT_NO_THROW(worker.step());
  });
}

}  // namespace
}  // namespace thinwire::testing
