// Tests of Exchange::change: what is owed stays, mistakes change nothing, a restart goes on alike.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// `options` with another codec and other rules.
ExchangeOptions with(ExchangeOptions options, const std::string& codec,
                     std::vector<TensorRule> rules = {}, const std::string& method = "auto") {
  options.codec = codec;
  options.rules = std::move(rules);
  options.method = method;
  options.feedback = "auto";
  options.grouping = std::nullopt;
  return options;
}

struct Path {
  ExchangeOptions first;
  std::vector<ExchangeOptions> others;  // each after two more steps
};

// The last of each sends all that is owed.
std::vector<Path> paths() {
  all_codecs();
  const ExchangeOptions any{.codec = "topk:density=0.1", .bucket_bytes = 2000};
  const TensorRule nearest{.pattern = "conv.*", .codec = "test-nearest"};
  const TensorRule owners{
      .pattern = "l*.weight", .codec = "topk:density=0.05", .method = "sparse-reduce"};
  const TensorRule rounds{.pattern = "emb*", .codec = "test-factors"};
  std::vector<Path> all;
  all.push_back({any, {with(any, "test-nearest"), with(any, "fp32")}});
  all.push_back({any,
                 {with(any, "topk:density=0.2", {nearest, owners}),
                  with(any, "test-nearest", {owners, rounds}), with(any, "fp32")}});
  all.push_back({with(any, "fp32", {owners, nearest}),
                 {with(any, "fp32", {{.pattern = "*.weight", .codec = "topk:density=0.1"}}),
                  with(any, "fp32", {}, "gather")}});
  ExchangeOptions whole = any;
  whole.grouping = Grouping::kModel;
  all.push_back({whole,
                 {with(any, "fp32", {{.pattern = "*", .codec = "test-nearest"}}),
                  with(any, "topk:density=0.3"), with(any, "fp32")}});
  ExchangeOptions parted = whole;
  parted.rules = {{.pattern = "[el]*", .codec = "topk:density=0.2", .grouping = Grouping::kModel},
                  {.pattern = "*.bias", .codec = "fp32"}};
  all.push_back(
      {parted,
       {with(any, "test-nearest",
             {{.pattern = "[el]*", .codec = "adacomp"}, {.pattern = "*.bias", .codec = "fp32"}}),
        with(any, "fp32",
             {{.pattern = "[el]*", .codec = "fp32", .method = "gather"},
              {.pattern = "*.bias", .codec = "fp32", .method = "dense"}})}});
  // Owners owe where nothing else does.
  ExchangeOptions forgetful{
      .codec = "topk:density=0.1", .feedback = "none", .method = "sparse-reduce"};
  all.push_back({forgetful, {with(forgetful, "fp32")}});
  return all;
}

TEST(ExchangeChange, NothingThatIsOwedIsLost) {
  for (const auto& [first, others] : paths())
    run_local(kRanks, [&](Group& group) {
      const auto model = small_model();
      Side side(group, model, first);
      std::vector<std::vector<double>> left;  // what was given and has not arrived
      for (const TensorSpec& tensor : model) left.emplace_back(tensor.count());
      double moved = 0;
      uint64_t step = 0;
      for (size_t change = 0; change <= others.size(); ++change) {
        if (change > 0) side.exchange().change(others[change - 1]);
        for (int i = 0; i < 2; ++i, ++step) {
          ASSERT_EQ(side.step(step).step, step);
          const auto given = all_gradients(model, kRanks, step);
          for (size_t t = 0; t < model.size(); ++t)
            for (size_t k = 0; k < left[t].size(); ++k) {
              for (const Tensors& of_rank : given) left[t][k] += double{of_rank[t][k]} / kRanks;
              left[t][k] -= side.values[t][k];
              if (change < others.size()) moved = std::max(moved, std::abs(left[t][k]));
            }
        }
      }
      // Without memories only what owners owe arrives: what ranks left out is lost.
      if (first.feedback == "none") return;
      EXPECT_GT(moved, 1e-3);
      for (size_t t = 0; t < model.size(); ++t)
        for (const double value : left[t]) ASSERT_NEAR(value, 0, 1e-7) << first.codec << ' ' << t;
    });
}

// Ranks that keep all of what they give, and owners that do not.
TEST(ExchangeChange, WhatOwnersOweWithoutMemoriesIsNotLostEither) {
  run_local(2, [](Group& group) {
    const std::vector<TensorSpec> model = {{"w", {4000}, TensorKind::kLinear}};
    const ExchangeOptions first{
        .codec = "topk:density=0.5", .feedback = "none", .method = "sparse-reduce"};
    const auto give = [&](Side& side, float value) {  // each rank one half
      side.values = {Values(4000)};
      for (size_t i = 0; i < 2000; ++i)
        side.values[0][2000 * static_cast<size_t>(group.rank()) + i] =
            value * static_cast<float>(1 + i);
      side.start(0);
      side.exchange().finish();
      return side.values[0];
    };
    Side side(group, model, first);
    Values got = give(side, 1);
    ExchangeOptions next = with(first, "fp32");
    next.feedback = "none";
    side.exchange().change(next);
    const Values rest = give(side, 0);
    size_t late = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      late += rest[i] != 0;
      EXPECT_FLOAT_EQ(got[i] + rest[i], static_cast<float>(1 + i % 2000) / 2) << i;
    }
    EXPECT_GT(late, 1000u);
  });
}

// To the bit: values, memories, and encoders where only options differ.
// The last rank sits out the step in which the others send what they owed as owners.
TEST(ExchangeChange, ARankThatSitsOutStillHasTheMemoriesOfAll) {
  std::array<std::vector<std::vector<std::string>>, kRanks>
      owners;  // names of arrays, by rank and step
  std::array<StateArrays, kRanks> states;
  run_local(kRanks, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const ExchangeOptions first{.codec = "test-nearest",
                                .feedback = "residual",
                                .method = "scatter-reduce",
                                .weighted = true};
    Side side(group, small_model(), first);
    const auto note = [&] {
      std::vector<std::string> names;
      for (const StateArray& array : side.store().save())
        if (array.name.find("/owner/") != std::string::npos) names.push_back(array.name);
      owners[rank].push_back(std::move(names));
    };
    for (uint64_t step = 0; step < 2; ++step) side.step(step);
    note();
    side.exchange().change(with(first, "topk:density=0.1", {}, "gather"));
    if (group.rank() == kRanks - 1) side.exchange().abstain(Abstention::kSitsOut);
    ASSERT_FALSE(side.step(2).skipped);
    note();
    states[rank] = side.store().save();
    ASSERT_FALSE(side.step(3).skipped);
    note();
  });
  EXPECT_THAT(owners, Each(owners.front()));
  EXPECT_FALSE(owners.front()[0].empty());
  EXPECT_EQ(owners.front()[1], owners.front()[0]);
  EXPECT_TRUE(owners.front()[2].empty());
  const auto owned = [](const StateArrays& arrays) {
    size_t values = 0;
    for (const StateArray& array : arrays)
      if (array.name.ends_with("/owner/residual")) values += array.data.size() / sizeof(float);
    return values;
  };
  EXPECT_EQ(owned(states.front()), 0u);
  EXPECT_GT(owned(states.back()), 0u);
  Store fewer;
  EXPECT_TRUE(fewer.load({states.begin(), states.end()}, 0, kRanks - 1).ok());
}

TEST(ExchangeChange, IsWhatAScheduleDoes) {
  const std::vector<std::array<std::string, 3>> all = {
      {"sidco:density=0.5,window=1", "sidco:density=0.1,window=1", "int8"},
      {"powersgd:rank=2", "powersgd:rank=2,min_compression=1.5", "powersgd:rank=1"},
      {"randomk:density=0.1", "randomk:density=0.3", "topk:density=0.2"}};
  for (const auto& [first, second, third] : all)
    run_local(kRanks, [&](Group& group) {
      ExchangeOptions options{.codec = first + " | 2: " + second + " | 4: " + third,
                              .grouping = Grouping::kTensor};
      Side scheduled(group, small_model(), options);
      options.codec = first;
      Side changed(group, small_model(), options);
      for (uint64_t step = 0; step < 6; ++step) {
        if (step == 2) changed.exchange().change(with(options, second));
        if (step == 4) changed.exchange().change(with(options, third));
        EXPECT_TRUE(same_state(scheduled.store().save(), changed.store().save())) << step;
        scheduled.step(step);
        changed.step(step);
        EXPECT_TRUE(same_bits(scheduled.values, changed.values)) << second << ' ' << step;
      }
      EXPECT_EQ(changed.exchange().options().feedback, "residual");
    });
}

// With the momentum of an optimiser in its memory.
ExchangeOptions with_momentum(const std::string& codec) {
  ExchangeOptions options{.codec = codec};
  options.feedback = place_momentum("memory", {.momentum = 0.9}, options).value().feedback;
  return options;
}

std::vector<std::string> codecs_that_take_momentum() {
  std::vector<std::string> all;
  for (const CodecEntry* entry : all_codecs())
    if (const std::string name(entry->info.name);
        place_momentum("memory", {.momentum = 0.9}, {.codec = name}))
      all.push_back(name);
  return all;
}

// What the memory of a stream has of this name, zeros where it has none.
Values array_of(const StateArrays& state, const std::string& stream, const char* name) {
  const std::string full = stream + "/feedback/" + name;
  for (const StateArray& array : state)
    if (array.name == full) {
      Values values(array.data.size() / sizeof(float));
      copy_state(state, full, std::span(values)).or_throw();
      return values;
    }
  return {};
}

// A memory that owes stays. A velocity goes on in the memory that the next codec needs.
TEST(ExchangeChange, MomentumStaysInTheMemoryFromEveryCodecToEveryOther) {
  const std::vector<std::string> codecs = codecs_that_take_momentum();
  EXPECT_GT(codecs.size(), 25u);
  for (const std::string& first : codecs)
    for (const std::string& second : codecs)
      run_local(2, [&](Group& group) {
        SCOPED_TRACE(first + " to " + second);
        const ExchangeOptions options = with_momentum(first);
        Side side(group, small_model(), options);
        for (uint64_t step = 0; step < 2; ++step) side.step(step);
        const StateArrays before = side.store().save();
        side.exchange().change(with(options, second));
        const bool owes = !options.feedback.starts_with("velocity");
        EXPECT_EQ(side.exchange().options().feedback,
                  owes ? options.feedback : with_momentum(second).feedback);
        const StateArrays after = side.store().save();
        const bool owners_owe = std::any_of(before.begin(), before.end(), [](const auto& array) {
          return array.name.find("/owner/") != std::string::npos;
        });
        size_t velocities = 0;
        for (const StreamSpec& stream : side.exchange().streams()) {
          const Values velocity = array_of(after, stream.name, "velocity");
          velocities += velocity.size();
          EXPECT_TRUE(same_bits(velocity, array_of(before, stream.name, "velocity")));
          if (owners_owe) continue;  // what they owe comes to the ranks
          Values owed = array_of(before, stream.name, "residual");
          const Values kept = array_of(after, stream.name, "residual");
          if (owed.empty()) owed.resize(kept.size());
          EXPECT_TRUE(same_bits(kept, owed));
        }
        EXPECT_GT(velocities, 1000u);
        for (uint64_t step = 2; step < 4; ++step) EXPECT_FALSE(side.step(step).skipped);
      });
}

// Whatever is sent when, each gradient has counted 1 / (1 - momentum) times in the end.
TEST(ExchangeChange, NothingOfTheMomentumIsLostOnTheWay) {
  for (const std::vector<std::string>& path :
       {std::vector<std::string>{"topk:density=0.1", "int8", "fp32"},
        {"topk:density=0.1", "sign", "sidco:density=0.2", "fp32"},
        {"int8", "topk:density=0.1", "fp32"},
        {"fp32", "topk:density=0.1", "powersgd:rank=1", "fp32"}})
    run_local(kRanks, [&](Group& group) {
      SCOPED_TRACE(path[0] + ", " + path[1]);
      const auto model = small_model();
      const ExchangeOptions first = with_momentum(path[0]);
      Side side(group, model, first);
      std::vector<std::vector<double>> got, given;
      for (const TensorSpec& tensor : model) {
        got.emplace_back(tensor.count());
        given.emplace_back(tensor.count());
      }
      const auto add = [&] {
        for (size_t t = 0; t < model.size(); ++t)
          for (size_t k = 0; k < got[t].size(); ++k) got[t][k] += side.values[t][k];
      };
      uint64_t step = 0;
      for (size_t i = 0; i < path.size(); ++i) {
        if (i > 0) side.exchange().change(with(first, path[i]));
        for (const uint64_t end = step + 3; step < end; ++step) {
          side.step(step);
          add();
          for (const Tensors& of_rank : all_gradients(model, kRanks, step))
            for (size_t t = 0; t < model.size(); ++t)
              for (size_t k = 0; k < given[t].size(); ++k)
                given[t][k] += double{of_rank[t][k]} / kRanks / (1 - 0.9);
        }
      }
      for (int rest = 0; rest < 250; ++rest) {  // until the velocities are nothing
        for (Values& values : side.values) std::fill(values.begin(), values.end(), 0.0f);
        for (size_t t = model.size(); t-- > 0;) side.start(t);
        side.exchange().finish();
        add();
      }
      for (size_t t = 0; t < model.size(); ++t)
        for (size_t k = 0; k < given[t].size(); ++k)
          ASSERT_NEAR(got[t][k], given[t][k], 3e-6) << model[t].name << ' ' << k;
    });
}

// What each rank is told, when rank 1 asks for `odd` and the others for `usual`. All then go on as
// they were.
std::vector<std::string> told(const ExchangeOptions& first, const ExchangeOptions& usual,
                              const ExchangeOptions& odd) {
  std::vector<std::string> messages(kRanks);
  run_local(kRanks, [&](Group& group) {
    Side side(group, small_model(), first);
    Side same(group, small_model(), first);
    side.step(0);
    same.step(0);
    try {
      side.exchange().change(group.rank() == 1 ? odd : usual);
    } catch (const Error& error) {
      messages[static_cast<size_t>(group.rank())] = error.what();
    }
    EXPECT_TRUE(same_state(side.store().save(), same.store().save()));
    EXPECT_EQ(side.exchange().options().codec, first.codec);
    side.step(1);
    same.step(1);
    EXPECT_TRUE(same_bits(side.values, same.values));
  });
  return messages;
}

// Where a memory is named it is that one, if it holds the same momentum and nothing is owed.
TEST(ExchangeChange, AMemoryThatIsNamedForMomentumIsTheOneThatIsThere) {
  const std::string named = "dgc:momentum=0.9,dampening=0,nesterov=false,mask=true";
  const auto named_as = [&](const std::string& codec, const std::string& feedback) {
    ExchangeOptions options = with({}, codec);
    options.feedback = feedback;
    return options;
  };
  run_local(2, [&](Group& group) {
    Side side(group, small_model(), with_momentum("fp16"));
    side.step(0);
    side.exchange().change(named_as("topk:density=0.1", named));
    EXPECT_EQ(side.exchange().options().feedback, named);
    EXPECT_FALSE(side.step(1).skipped);
  });
  const ExchangeOptions sparse = with_momentum("topk:density=0.1");
  const auto refused = [&](const ExchangeOptions& asked, const char* why) {
    EXPECT_THAT(told(sparse, asked, asked), Each(HasSubstr(why)));
  };
  refused(named_as("int8", named), "a change keeps the memory");
  refused(named_as("fp16", "velocity:momentum=0.9"), "a change keeps the memory");
  refused(named_as("int8", "residual"), "a change keeps the memory");
  refused(with({}, "signum"), "would act twice: memory 'momentum'");
  refused(with({}, "demo"), "cannot take it over");
}

TEST(ExchangeChange, ARestartGoesOnAlike) {
  for (const auto& [first, others] : paths())
    run_local(kRanks, [&](Group& group) {
      Side side(group, small_model(), first);
      uint64_t step = 0;
      for (const ExchangeOptions& next : others) {
        side.step(step++);
        side.exchange().change(next);
        side.step(step++);
        const auto store = std::make_shared<Store>();
        const std::vector<StateArrays> saved(kRanks, side.store().save());
        ASSERT_TRUE(store->load(saved, group.rank(), kRanks).is_ok());
        ExchangeOptions options = side.exchange().options();
        options.first_step = step;
        Side resumed(group, small_model(), options, store);
        ASSERT_EQ(resumed.exchange().streams().size(), side.exchange().streams().size());
        for (size_t i = 0; i < side.exchange().streams().size(); ++i)
          EXPECT_EQ(resumed.exchange().streams()[i].name, side.exchange().streams()[i].name);
        side.step(step);
        const StepReport report = resumed.step(step++);
        EXPECT_EQ(report.streams.size(), side.exchange().streams().size());
        EXPECT_TRUE(same_bits(resumed.values, side.values)) << next.codec;
      }
    });
}

TEST(ExchangeChange, MistakesAreToldToAllAndChangeNothing) {
  const ExchangeOptions first{.codec = "topk:density=0.1"};
  ExchangeOptions whole = first;
  whole.grouping = Grouping::kModel;
  const auto all_told = [&](const ExchangeOptions& options) {
    return told(first, options, options);
  };
  EXPECT_THAT(all_told(with(first, "topkk")), Each(HasSubstr("did you mean 'topk'?")));
  EXPECT_THAT(all_told(with(first, "int8", {{.pattern = "lstm", .codec = "fp32"}})),
              Each(HasSubstr("rule 'lstm': no tensor is named so")));
  EXPECT_THAT(all_told(with(first, "int8", {}, "low-rank")), Each(HasSubstr("use scatter-reduce")));
  EXPECT_THAT(all_told(with(first, "scalecom")),
              Each(AllOf(HasSubstr("goes with memory lowpass"), HasSubstr("in memory residual"))));
  const ExchangeOptions ruled = with(first, "int8", {{.pattern = "lstm*", .codec = "int4"}});
  EXPECT_THAT(told(whole, ruled, ruled), Each(HasSubstr("rules would part them")));
  ExchangeOptions buckets = with(first, "int8");
  buckets.bucket_bytes = 7;
  EXPECT_THAT(all_told(buckets), Each(HasSubstr("another option of the exchange differs")));
  EXPECT_THAT(told(first, with(first, "int8"), ruled),
              Each(HasSubstr("'rule 'lstm*': codec int4:block=256' on rank 1")));
  EXPECT_THAT(told(first, with(first, "int8"), with(first, "topkk")),
              Each(HasSubstr("'codec topkk' on rank 1")));
  EXPECT_THAT(told(first, with(first, "int8"), buckets),
              Each(HasSubstr("'mistake change: codec, feedback")));
}

// ef21 follows the mean, of which a rank that sits out learns nothing.
TEST(ExchangeChange, RanksWeighAlikeWhereTheNewMemoryNeedsThat) {
  run_local(2, [](Group& group) {
    Side side(group, small_model(), {.codec = "fp32"});
    side.exchange().change({.codec = "topk:density=0.1", .feedback = "ef21"});
    EXPECT_THROW(side.exchange().set_weighted(true), Error);
    Side other(group, small_model(), {.codec = "fp16"});
    other.exchange().set_weighted(true);
    other.exchange().abstain(Abstention::kSitsOut);
    EXPECT_THROW(other.exchange().set_weighted(false), Error);
  });
}

TEST(ExchangeChange, DuringAStepIsABrokenContract) {
  run_local(2, [](Group& group) {
    Side side(group, small_model(), {});
    side.values = gradients(small_model(), group.rank(), 0);
    side.start(0);
    EXPECT_THROW(side.exchange().change({.codec = "fp16"}), Error);
    side.exchange().finish();
    side.exchange().change({.codec = "fp16"});
    EXPECT_FALSE(side.step(1).skipped);
    EXPECT_EQ(side.exchange().options().codec, "fp16");
  });
}

// A state that fits no memory of the new options stops all ranks, and says where.
TEST(ExchangeChange, AnErrorOfOneRankEndsTheExchangeOnAll) {
  run_local(kRanks, [](Group& group) {
    const auto store = std::make_shared<Store>();
    if (group.rank() == 1) {
      const Values wrong(5);
      store
          ->load({kRanks, {make_state("model/feedback/residual", wrong, OnResize::kOwedToMean)}}, 1,
                 kRanks)
          .or_throw();
    }
    Side side(group, small_model(), {}, store);
    side.step(0);
    for (int call = 0; call < 2; ++call) try {
        side.exchange().change({.codec = "topk", .grouping = Grouping::kModel});
        ADD_FAILURE() << "nobody noticed";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("exchange: could not be changed on rank 1: "));
      }
  });
}

}  // namespace
}  // namespace thinwire::testing
