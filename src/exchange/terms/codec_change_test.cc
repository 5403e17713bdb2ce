// Tests of codecs that change during a run: debts are kept, ranks agree, restarts change nothing.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 8;

// The codec of each step, written out.
struct Change {
  std::string schedule;
  std::vector<std::string> codecs;
  std::string method = "auto";
};

std::vector<Change> changes() {
  all_codecs();
  const std::string half = "topk:density=0.5", tenth = "topk:density=0.1";
  const std::string factors = "test-factors", leader = "test-leader";
  return {{"topk:density=table(0.5;0.1@3)", {half, half, half, tenth, tenth, tenth, tenth, tenth}},
          {"fp32 | 2: topk:density=table(0.5;0.1@4) | 6: fp16",
           {"fp32", "fp32", half, half, tenth, tenth, "fp16", "fp16"}},
          {"fp16 | 1: adacomp | 3: fp16 | 5: topk:density=0.1",
           {"fp16", "adacomp", "adacomp", "fp16", "fp16", tenth, tenth, tenth}},
          {"fp32 | 1: test-factors | 4: topk:density=0.1 | 5: test-leader | 7: test-factors",
           {"fp32", factors, factors, factors, tenth, leader, leader, factors}},
          {"powersgd:rank=table(1;2@3) | 6: powersgd:alternate=true,rank=3",
           {"powersgd:rank=1", "powersgd:rank=1", "powersgd:rank=1", "powersgd:rank=2",
            "powersgd:rank=2", "powersgd:rank=2", "powersgd:alternate=true,rank=3",
            "powersgd:alternate=true,rank=3"}},
          {"uniform:bits=table(8;4@3;2@6)",
           {"uniform:bits=8", "uniform:bits=8", "uniform:bits=8", "uniform:bits=4",
            "uniform:bits=4", "uniform:bits=4", "uniform:bits=2", "uniform:bits=2"}},
          {"test-nearest | 2: topk:density=0.1 | 4: test-nearest | 6: fp32",
           {"test-nearest", "test-nearest", tenth, tenth, "test-nearest", "test-nearest", "fp32",
            "fp32"}},
          {"topk:density=0.5 | 3: randomk:density=0.1 | 5: topk:density=0.1",
           {half, half, half, "randomk:density=0.1", "randomk:density=0.1", tenth, tenth, tenth},
           "sparse-reduce"}};
}

StateArrays memories_of(const Store& store) {
  StateArrays memories;
  for (StateArray& array : store.save())
    if (array.name.find("/feedback/") != std::string::npos) memories.push_back(std::move(array));
  return memories;
}

// An exchange that follows a schedule is one that is rebuilt at each change over the same store.
TEST(CodecChange, IsRebuildingWithTheOtherCodec) {
  for (const Change& change : changes())
    for (const FeedbackEntry* memory : list_feedbacks())
      run_local(3, [&](Group& group) {
        const ExchangeOptions scheduled{.codec = change.schedule,
                                        .feedback = std::string(memory->name),
                                        .method = change.method,
                                        .bucket_bytes = 2000};
        Side side(group, small_model(), scheduled);
        const auto store = std::make_shared<Store>();
        for (uint64_t step = 0; step < kSteps; ++step) {
          ExchangeOptions options = scheduled;
          options.codec = change.codecs[step];
          options.first_step = step;
          Side rebuilt(group, small_model(), options, store);
          // Also right after a change, which the end of a step makes.
          EXPECT_TRUE(same_state(memories_of(side.store()), memories_of(*store)))
              << change.schedule << ", " << memory->name << ", step " << step;
          EXPECT_EQ(side.step(step).step, step);
          EXPECT_EQ(rebuilt.step(step).step, step);
          EXPECT_TRUE(same_bits(side.values, rebuilt.values))
              << change.schedule << ", " << memory->name << ", step " << step;
        }
        EXPECT_TRUE(same_state(memories_of(side.store()), memories_of(*store)));
      });
}

// (1/n) x the sum over ranks of what is remembered, and all means, add up to what was given.
TEST(CodecChange, NothingThatIsOwedIsLost) {
  for (const Change& change : changes())
    for (const std::string memory : {"residual", "efmixed:density=0.2"}) {
      constexpr int kRanks = 3;
      const auto model = small_model();
      std::vector<StateArrays> left(kRanks);
      std::vector<double> owed(1000);  // linear.weight
      run_local(kRanks, [&](Group& group) {
        Side side(group, model,
                  {.codec = change.schedule, .feedback = memory, .method = change.method});
        for (uint64_t step = 0; step < kSteps; ++step) {
          side.step(step);
          if (group.rank() != 0) continue;
          const auto given = all_gradients(model, kRanks, step);
          for (size_t i = 0; i < owed.size(); ++i) {
            for (const Tensors& of_rank : given) owed[i] += double{of_rank[7][i]} / kRanks;
            owed[i] -= side.values[7][i];
          }
        }
        left[static_cast<size_t>(group.rank())] = side.store().save();
      });
      // fp16 rounds the mean once more, which nobody remembers: half an ulp of 0.05.
      for (size_t i = 0; i < owed.size(); ++i) {
        double kept = 0;
        for (const StateArrays& state : left) {
          Values residual(owed.size());
          ASSERT_TRUE(copy_state(state, "linear.weight/feedback/residual", std::span(residual)));
          kept += double{residual[i]} / kRanks;
          if (const auto owner = owed_by_owner(state, "linear.weight", owed.size()); owner)
            kept += double{(*owner)[i]};
        }
        ASSERT_NEAR(kept, owed[i], change.schedule.find("fp16") == std::string::npos ? 5e-8 : 1e-4)
            << change.schedule << " " << i;
      }
    }
}

TEST(CodecChange, ARestartAtAnyStepChangesNothing) {
  const std::string stateful = "sidco:density=table(0.5;0.2@3;0.05@6),window=1";
  std::vector<Change> all = changes();
  all.push_back({stateful, {}});
  for (const auto& [schedule, codecs, method] : all)
    run_local(2, [&](Group& group) {
      ExchangeOptions options{.codec = schedule, .feedback = "residual", .method = method};
      options.steps_per_epoch = 1;
      Side plain(group, small_model(), options);
      for (uint64_t stop = 0; stop < kSteps; ++stop) {
        const auto store = std::make_shared<Store>();
        const std::vector<StateArrays> saved(2, plain.store().save());
        ASSERT_TRUE(store->load(saved, group.rank(), 2).is_ok());
        options.first_step = stop;
        Side resumed(group, small_model(), options, store);
        EXPECT_TRUE(store->unclaimed().empty());
        plain.step(stop);
        EXPECT_EQ(resumed.step(stop).step, stop);
        EXPECT_TRUE(same_bits(resumed.values, plain.values)) << schedule << " at " << stop;
        EXPECT_TRUE(same_state(store->save(), plain.store().save())) << schedule << " at " << stop;
      }
    });
}

TEST(CodecChange, OtherOptionsKeepTheEncodersStateOtherCodecsDoNot) {
  const auto encoder_of = [](const Side& side) {
    StateArrays arrays;
    for (StateArray& array : const_cast<Side&>(side).store().save())
      if (array.name.find("/encoder/") != std::string::npos) arrays.push_back(std::move(array));
    return arrays;
  };
  run_local(2, [&](Group& group) {
    const std::string first = "sidco:density=0.3,window=1";
    Side steady(group, small_model(), {.codec = first});
    Side options(group, small_model(), {.codec = "sidco:density=table(0.3;0.01@4),window=1"});
    Side codecs(group, small_model(),
                {.codec = first + " | 4: topk", .grouping = Grouping::kModel});
    for (uint64_t step = 0; step < 4; ++step)
      for (Side* side : {&steady, &options, &codecs}) side->step(step);
    EXPECT_FALSE(encoder_of(steady).empty());
    EXPECT_TRUE(same_state(encoder_of(options), encoder_of(steady)));
    EXPECT_TRUE(encoder_of(codecs).empty());
  });
}

TEST(CodecChange, CountsInEpochsOfSoManySteps) {
  run_local(2, [](Group& group) {
    ExchangeOptions options{.codec = "fp32 | 2: fp16"};
    options.steps_per_epoch = 3;
    Side side(group, {{"w", {100}, TensorKind::kLinear}}, options);
    for (uint64_t step = 0; step < 9; ++step)
      EXPECT_EQ(side.step(step).streams[0].payload_bytes, step < 6 ? 400u : 200u) << step;
  });
}

TEST(CodecChange, SetStepLeadsToItsCodec) {
  run_local(2, [](Group& group) {
    Side side(group, {{"w", {100}, TensorKind::kLinear}}, {.codec = "fp32 | 5: fp16"});
    side.exchange().set_step(7);
    EXPECT_EQ(side.step(7).streams[0].payload_bytes, 200u);
    side.exchange().set_step(1);
    EXPECT_EQ(side.step(1).streams[0].payload_bytes, 400u);
  });
}

// A step that is skipped just before or after a change takes its memory along.
TEST(CodecChange, SkippedStepsAroundAChangeLeaveNoTrace) {
  run_local(2, [](Group& group) {
    const ExchangeOptions options{.codec = "fp16 | 2: topk:density=0.1", .feedback = "residual"};
    Side side(group, small_model(), options);
    side.step(0);
    const StateArrays before = memories_of(side.store());
    for (const uint64_t step : {1, 2}) {
      side.values = gradients(small_model(), group.rank(), step);
      if (group.rank() == 1) side.values[7][0] = NAN;
      for (size_t i = side.values.size(); i-- > 0;) side.start(i);
      EXPECT_TRUE(side.exchange().finish().skipped);
      EXPECT_TRUE(same_state(memories_of(side.store()), before)) << step;
    }
    EXPECT_FALSE(side.step(3).skipped);
  });
}

TEST(CodecChange, RanksThatDisagreeAreTold) {
  run_local(2, [](Group& group) {
    Store store;
    const std::string codec =
        group.rank() == 0 ? "topk:density=warmup(0.1;2)" : "topk:density=warmup(0.1;3)";
    try {
      make_exchange(group, store, small_model(), {.codec = codec});
      ADD_FAILURE() << "they agreed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_THAT(error.what(), HasSubstr("warmup(0.1;3)"));
    }
  });
}

TEST(CodecChange, StreamsStayTheSame) {
  run_local(1, [](Group& group) {
    Store store;
    ExchangeOptions options{.codec = "topk | 1: sidco"};
    try {
      make_exchange(group, store, small_model(), options);
      ADD_FAILURE() << "tensors cannot become one vector in mid-run";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("choose a grouping"));
    }
    options.grouping = Grouping::kTensor;
    make_exchange(group, store, small_model(), options);
    options.method = "dense";
    EXPECT_THROW(make_exchange(group, store, small_model(), options), Error);
  });
}

TEST(CodecChange, ScheduledCodecsAreThoseAtTheEnds) {
  auto codecs = scheduled_codecs("fp32 | 1: topk:density=linear(0.5;0.1;4)");
  ASSERT_EQ(codecs.value().size(), 3u);
  EXPECT_THAT(codecs.value()[2].canonical, HasSubstr("density=0.1"));
  EXPECT_EQ(scheduled_codecs("fp16").value().size(), 1u);
  EXPECT_FALSE(scheduled_codecs("fp32 | topk").is_ok());
}

}  // namespace
}  // namespace thinwire::testing
