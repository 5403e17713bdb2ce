// Grouping::kGlobal: one threshold selects from all tensors, bucket by bucket, and is rolled back.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "thinwire/settled.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Layers of different sizes, whose gradients are of different scales, and biases between them.
std::vector<TensorSpec> layers() {
  std::vector<TensorSpec> model;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    model.push_back({name + ".weight", {100, 10u << layer}, TensorKind::kLinear});
    model.push_back({name + ".bias", {100}, TensorKind::kBias});
  }
  return model;
}

Tensors scaled(const std::vector<TensorSpec>& model, int rank, uint64_t step) {
  Tensors values = gradients(model, rank, step);
  for (size_t i = 0; i < values.size(); ++i)
    for (float& value : values[i]) value *= std::exp2(static_cast<float>(i % 5));
  return values;
}

bool is_weight(const TensorSpec& tensor) { return tensor.kind == TensorKind::kLinear; }

StepReport step_with(Side& side, Tensors values) {
  side.values = std::move(values);
  for (size_t i = side.values.size(); i-- > 0;) side.start(i);
  return side.exchange().finish();
}

struct Counts {
  uint64_t kept = 0, target = 0;
};
Counts counts_of(const StepReport& report) {
  Counts sum;
  for (const StreamCounters& stream : report.streams)
    if (stream.target > 0) {
      sum.kept += stream.kept;
      sum.target += stream.target;
    }
  return sum;
}

// What arrived of the weights, each as it was given or not at all. Biases arrive whole.
struct Arrival {
  uint64_t weights = 0, kept = 0;
  float least_kept = 1e30f, largest_left = 0;
};
Arrival arrival_of(const std::vector<TensorSpec>& model, const Tensors& given,
                   const Tensors& arrived) {
  Arrival all;
  for (size_t t = 0; t < model.size(); ++t)
    for (size_t i = 0; i < given[t].size(); ++i) {
      const float value = given[t][i], got = arrived[t][i];
      if (!is_weight(model[t]) || got != 0) {
        EXPECT_EQ(got, value) << model[t].name << " at " << i;
      }
      if (!is_weight(model[t])) continue;
      ++all.weights;
      all.kept += got != 0;
      float& bound = got != 0 ? all.least_kept : all.largest_left;
      bound = got != 0 ? std::min(bound, std::abs(value)) : std::max(bound, std::abs(value));
    }
  return all;
}

// Of several buckets.
ExchangeOptions a_tenth() {
  return {.codec = "topk:density=0.1", .grouping = Grouping::kGlobal, .bucket_bytes = 4000};
}

// Runs body(rank, side, other, step) for five steps. Two ranks have two exchanges each, which end
// every step with the same bits.
template <typename Body>
void on_two_sides(const Body& body) {
  run_local(2, [&](Group& group) {
    const auto model = layers();
    Side side(group, model, a_tenth()), other(group, model, a_tenth());
    for (uint64_t step = 0; step < 5; ++step) {
      body(group.rank(), side, other, step);
      EXPECT_TRUE(same_bits(side.values, other.values)) << step;
    }
    EXPECT_TRUE(same_state(side.store().save(), other.store().save()));
  });
}

const char* const kOffering[] = {"topk:density=0.1", "dgc:density=0.1", "sidco:density=0.1",
                                 "gaussiank:density=0.1", "redsync:density=0.1"};

// As in the whole model as one vector, every weight that is sent is larger than every one that is
// not; from the third step on nearly, because what a step's first streams have moves the threshold
// of the later ones.
TEST(ExchangeGlobal, SelectsWhatTheWholeModelWouldByThatThreshold) {
  const auto model = layers();
  for (const std::string codec : kOffering)
    for (const size_t bucket_bytes : {400, 20000, 1000000})
      run_local(1, [&](Group& group) {
        Side side(group, model,
                  {.codec = codec,
                   .feedback = "none",
                   .grouping = Grouping::kGlobal,
                   .bucket_bytes = bucket_bytes});
        step_with(side, scaled(model, 0, 0));  // nothing is known yet
        for (uint64_t step = 1; step < 4; ++step) {
          const Tensors given = scaled(model, 0, 0);
          const Counts counts = counts_of(step_with(side, given));
          const Arrival arrival = arrival_of(model, given, side.values);
          EXPECT_GT(arrival.least_kept, (step == 1 ? 1.0f : 0.9f) * arrival.largest_left)
              << codec << ", step " << step;
          EXPECT_EQ(counts.kept, arrival.kept);
          EXPECT_EQ(counts.target, arrival.weights / 10);
          const double tenth = static_cast<double>(arrival.weights) / 10;
          EXPECT_NEAR(static_cast<double>(arrival.kept), tenth, 0.2 * tenth)
              << codec << ", step " << step;
        }
      });
}

// Layers of larger gradients send more: a tenth of each tensor is another selection.
TEST(ExchangeGlobal, LayersOfLargeGradientsSendMore) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    Side side(group, model, {.codec = "topk:density=0.1", .grouping = Grouping::kGlobal});
    StepReport report;
    for (uint64_t step = 0; step < 6; ++step)
      report = step_with(side, scaled(model, group.rank(), step));
    double most = 0, least = 1;
    for (const StreamCounters& stream : report.streams)
      if (stream.target > 0) {
        const double share = static_cast<double>(stream.kept) / static_cast<double>(stream.values);
        most = std::max(most, share);
        least = std::min(least, share);
      }
    EXPECT_GT(most, 0.2);
    EXPECT_LT(least, 0.05);
  });
}

// The first bucket has arrived before the gradients of the others exist.
TEST(ExchangeGlobal, BucketsTravelWhileTheBackwardPassGoesOn) {
  for (const std::string method : {"gather", "sparse-reduce"})
    run_local(2, [&](Group& group) {
      std::atomic<int> arrived{0};
      TamperingGroup watching(group, [&](int, int tag, std::span<std::byte>) {
        if (tag < 2) ++arrived;  // of the first bucket
      });
      const auto model = layers();
      Side side(
          watching, model,
          {.codec = "topk", .method = method, .grouping = Grouping::kGlobal, .bucket_bytes = 4000});
      step_with(side, scaled(model, group.rank(), 0));
      step_with(side, scaled(model, group.rank(), 1));
      arrived = 0;
      side.values = scaled(model, group.rank(), 2);
      side.start(7);
      side.start(6);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 1 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      EXPECT_GE(arrived, 1) << method;
      for (size_t i = 6; i-- > 0;) side.start(i);
      EXPECT_FALSE(side.exchange().finish().skipped);
    });
}

TEST(ExchangeGlobal, TheOrderOfArrivalChangesNothing) {
  on_two_sides([](int rank, Side& side, Side& other, uint64_t step) {
    step_with(side, scaled(layers(), rank, step));
    other.values = scaled(layers(), rank, step);
    for (const uint64_t i : random_permutation({.step = step}, other.values.size())) other.start(i);
    other.exchange().finish();
  });
}

TEST(ExchangeGlobal, TheSizeOfBucketsChangesNothing) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    ExchangeOptions options = a_tenth();
    Side side(group, model, options);
    options.bucket_bytes = 1000000;
    Side other(group, model, options);
    for (uint64_t step = 0; step < 5; ++step) {
      for (Side* one : {&side, &other}) step_with(*one, scaled(model, group.rank(), step));
      for (size_t i = 0; i < model.size(); ++i) {
        // Biases travel uncompressed, and are added by bucket.
        if (is_weight(model[i])) {
          EXPECT_EQ(side.values[i], other.values[i]) << "step " << step << ", tensor " << i;
        }
      }
    }
  });
}

TEST(ExchangeGlobal, AStepThatWasLeftOpenLeavesNoTraceInTheThreshold) {
  run_local(2, [](Group& group) {
    const ExchangeOptions options{.codec = "topk:density=0.1", .grouping = Grouping::kGlobal};
    ExchangeOptions holding = options;
    holding.hold = true;
    const auto store = std::make_shared<Store>();
    {
      Side open(group, layers(), holding, store);
      EXPECT_FALSE(step_with(open, scaled(layers(), group.rank(), 9)).skipped);
    }
    Side side(group, layers(), options, store), other(group, layers(), options);
    for (uint64_t step = 0; step < 3; ++step) {
      for (Side* one : {&side, &other}) step_with(*one, scaled(layers(), group.rank(), step));
      EXPECT_EQ(side.values, other.values) << "step " << step;
    }
    EXPECT_TRUE(same_state(side.store().save(), other.store().save()));
  });
}

TEST(ExchangeGlobal, ASkippedStepLeavesNoTraceInTheThreshold) {
  on_two_sides([](int rank, Side& side, Side& other, uint64_t step) {
    if (step == 2) {
      const StateArrays before = side.store().save();
      Tensors bad = scaled(layers(), rank, 100);
      if (rank == 1) bad[0][0] = NAN;  // of the last bucket
      EXPECT_TRUE(step_with(side, bad).skipped);
      EXPECT_TRUE(same_state(side.store().save(), before));
      side.exchange().set_step(step);
    }
    for (Side* one : {&side, &other}) step_with(*one, scaled(layers(), rank, step));
  });
}

std::vector<std::string> threshold_keys(Side& side) {
  std::vector<std::string> keys;
  for (const StateArray& array : side.store().save())
    if (array.name.find("/threshold/magnitudes") != std::string::npos) keys.push_back(array.name);
  return keys;
}

// Rules make sections, and each has a threshold of its own.
TEST(ExchangeGlobal, EverySectionHasItsThreshold) {
  run_local(2, [](Group& group) {
    Side side(group, layers(),
              {.codec = "topk:density=0.1",
               .grouping = Grouping::kGlobal,
               .rules = {{.pattern = "layer[23]*",
                          .codec = "dgc:density=0.02",
                          .grouping = Grouping::kGlobal}}});
    for (uint64_t step = 0; step < 3; ++step) step_with(side, scaled(layers(), group.rank(), step));
    EXPECT_THAT(threshold_keys(side),
                ::testing::UnorderedElementsAre("layer0.weight/threshold/magnitudes",
                                                "layer2.weight/threshold/magnitudes"));
  });
}

// Warm-ups: the density of the next step holds in the next step.
TEST(ExchangeGlobal, FollowsAScheduleOfDensities) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    ExchangeOptions options{.codec = "topk:density=table(0.3;0.1@10;0.03@20)",
                            .feedback = "none",
                            .grouping = Grouping::kGlobal};
    Side side(group, model, options);
    for (uint64_t step = 0; step < 25; ++step) {
      const Counts counts = counts_of(step_with(side, scaled(model, group.rank(), step)));
      const uint64_t wanted = step < 10 ? 4500 : step < 20 ? 1500 : 450;
      EXPECT_EQ(counts.target, wanted);
      if (step == 0) continue;
      EXPECT_NEAR(static_cast<double>(counts.kept), static_cast<double>(wanted),
                  0.2 * static_cast<double>(wanted))
          << step;
    }
  });
}

TEST(ExchangeGlobal, DensePhasesHaveNoThreshold) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    Side side(group, model, {.codec = "fp32 | 2: topk:density=0.1", .grouping = Grouping::kGlobal});
    for (uint64_t step = 0; step < 6; ++step) {
      const Counts counts = counts_of(step_with(side, scaled(model, group.rank(), step)));
      EXPECT_EQ(counts.target, step < 2 ? 0u : 1500u) << step;
      EXPECT_LE(counts.kept, 2 * counts.target);
    }
  });
}

// The streams are those of grouping tensor, and so are the memories.
TEST(ExchangeGlobal, ChangesToTensorsAndBackWithItsMemories) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    const ExchangeOptions global = a_tenth();
    ExchangeOptions tensor = global;
    tensor.grouping = Grouping::kTensor;
    Side side(group, model, global);
    std::vector<double> owed(model[0].count());
    uint64_t step = 0;
    bool alike = false;  // in the last step every stream kept its own target
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i, ++step) {
        const StepReport report = step_with(side, scaled(model, group.rank(), step));
        alike = std::all_of(report.streams.begin(), report.streams.end(), [](const auto& stream) {
          return stream.target == 0 || stream.kept == stream.target;
        });
        const Tensors first = scaled(model, 0, step), second = scaled(model, 1, step);
        for (size_t v = 0; v < owed.size(); ++v)
          owed[v] += 0.5 * (first[0][v] + second[0][v]) - side.values[0][v];
      }
    };
    run(3);
    side.exchange().change(tensor);
    EXPECT_EQ(side.exchange().options().grouping, Grouping::kTensor);
    EXPECT_TRUE(threshold_keys(side).empty());
    run(2);
    EXPECT_TRUE(alike);
    side.exchange().change(global);
    run(3);
    EXPECT_FALSE(alike);
    EXPECT_EQ(threshold_keys(side).size(), 1u);

    ExchangeOptions denser = global;  // keeps the grouping if none is named
    denser.codec = "dgc:density=0.2";
    denser.grouping = std::nullopt;
    side.exchange().change(denser);
    EXPECT_EQ(side.exchange().options().grouping, Grouping::kGlobal);
    run(2);
    denser.codec = "int8";  // which has no threshold
    side.exchange().change(denser);
    EXPECT_EQ(side.exchange().options().grouping, Grouping::kTensor);
    run(1);
    denser.codec = "fp32";
    side.exchange().change(denser);
    run(1);
    for (const double value : owed) EXPECT_NEAR(value, 0, 1e-5);
  });
}

// Encoders of an exchange that was built without it take no threshold, and are not taken over.
TEST(ExchangeGlobal, AStoreOfTensorsServesIt) {
  run_local(2, [](Group& group) {
    const auto model = layers();
    ExchangeOptions options{.codec = "topk:density=0.1", .grouping = Grouping::kTensor};
    const auto store = std::make_shared<Store>();
    Side(group, model, options, store).step(0);
    options.grouping = Grouping::kGlobal;
    Side side(group, model, options, store);
    StepReport report;
    for (uint64_t step = 1; step < 4; ++step)
      report = step_with(side, scaled(model, group.rank(), step));
    EXPECT_TRUE(std::any_of(report.streams.begin(), report.streams.end(), [](const auto& stream) {
      return stream.target > 0 && stream.kept > 2 * stream.target;
    }));
  });
}

// Another density keeps what was learnt.
TEST(ExchangeGlobal, AChangeOfTheDensityHoldsAtOnce) {
  run_local(1, [](Group& group) {
    const auto model = layers();
    ExchangeOptions options{
        .codec = "topk:density=0.2", .feedback = "none", .grouping = Grouping::kGlobal};
    Side side(group, model, options);
    for (uint64_t step = 0; step < 3; ++step) step_with(side, scaled(model, 0, 0));
    options.codec = "topk:density=0.05";
    side.exchange().change(options);
    const Tensors given = scaled(model, 0, 0);
    const Counts counts = counts_of(step_with(side, given));
    EXPECT_EQ(counts.target, 750u);
    EXPECT_NEAR(static_cast<double>(counts.kept), 750, 100);
    const Arrival arrival = arrival_of(model, given, side.values);
    EXPECT_GT(arrival.least_kept, arrival.largest_left);
  });
}

// A rank's threshold is its own, and another number of ranks takes those that there are.
TEST(ExchangeGlobal, AnotherNumberOfRanksGoesOn) {
  const auto model = layers();
  const ExchangeOptions options{.codec = "topk:density=0.1", .grouping = Grouping::kGlobal};
  std::vector<StateArrays> saved(2);
  run_local(2, [&](Group& group) {
    Side side(group, model, options);
    for (uint64_t step = 0; step < 4; ++step) step_with(side, scaled(model, group.rank(), step));
    saved[static_cast<size_t>(group.rank())] = side.store().save();
  });
  run_local(3, [&](Group& group) {
    const auto store = std::make_shared<Store>();
    ASSERT_TRUE(store->load(saved, group.rank(), 3));
    Side side(group, model, options, store);
    EXPECT_TRUE(store->unclaimed().empty());
    const Counts counts = counts_of(step_with(side, scaled(model, group.rank(), 4)));
    const double ratio = static_cast<double>(counts.kept) / static_cast<double>(counts.target);
    EXPECT_GT(ratio, 0.7);
    EXPECT_LT(ratio, 1.4);
  });
}

TEST(ExchangeGlobal, OtherCodecsAreToldWhichOnesHaveIt) {
  for (const std::string codec : {"int8", "adacomp", "randomk", "topk:block=64", "fp32 | 1: sign",
                                  "redsync:quantized=true"}) {
    const Status status = check_exchange({.codec = codec, .grouping = Grouping::kGlobal});
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << codec;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("grouping global"), HasSubstr("topk, sidco, dgc, threshold, "),
                      Not(HasSubstr("int4"))))
        << codec;
  }
  const Status of_rule =
      check_exchange({.codec = "topk",
                      .grouping = Grouping::kGlobal,
                      .rules = {{.pattern = "*", .codec = "int8", .grouping = Grouping::kGlobal}}});
  EXPECT_THAT(of_rule.message(), HasSubstr("rule '*': grouping global"));
  for (const std::string codec : {"fp32", "threshold", "fp32 | 1: topk:density=warmup(0.01;2)"})
    EXPECT_EQ(settled_options({.codec = codec, .grouping = Grouping::kGlobal}).value().grouping,
              Grouping::kGlobal)
        << codec;
}

}  // namespace
}  // namespace thinwire::testing
