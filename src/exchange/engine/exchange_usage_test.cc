// Tests of using an exchange: order of calls, tickets, unused tensors, rebuilding, misuse.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "exchange/testing/exchange_oracle.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

std::vector<ExchangeOptions> usual_and_odd() {
  all_codecs();
  return {{.codec = "fp32", .bucket_bytes = 500},
          {.codec = "fp32", .method = "gather", .bucket_bytes = 500},
          {.codec = "adacomp", .bucket_bytes = 500},
          {.codec = "adacomp", .grouping = Grouping::kModel},
          {.codec = "sidco:density=0.1", .feedback = "residual", .method = "gather"},
          {.codec = "fp16", .feedback = "residual", .bucket_bytes = 500},
          {.codec = "test-nearest", .bucket_bytes = 500, .chunk_values = 100},
          {.codec = "fp16", .feedback = "residual", .method = "scatter-reduce"},
          {.codec = "topk:density=0.3", .method = "sparse-reduce", .bucket_bytes = 500},
          {.codec = "sidco:density=0.1", .method = "sparse-reduce"},
          {.codec = "test-factors", .bucket_bytes = 500},
          {.codec = "test-leader", .bucket_bytes = 200},
          {.codec = "fp32", .method = "library", .bucket_bytes = 500}};
}

// The message of the error that `body` throws; empty when it throws none.
template <typename Body>
std::string error_of(const Body& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(ExchangeUsage, TensorsMayStartInAnyOrderAndAnotherOnEachRank) {
  for (const ExchangeOptions& options : usual_and_odd())
    run_local(4, [&](Group& group) {
      Side side(group, small_model(), options);
      Side plain(group, small_model(), options);
      for (uint64_t step = 0; step < 5; ++step) {
        plain.step(step);
        side.values = gradients(small_model(), group.rank(), step);
        const RandomKey key{.step = step, .stream = static_cast<uint32_t>(group.rank())};
        for (const uint64_t i : random_permutation(key, side.values.size())) side.start(i);
        side.exchange().finish();
        EXPECT_TRUE(same_bits(side.values, plain.values));
      }
    });
}

// The first bucket is on its way, and has even arrived, while the gradients of the second do not
// exist.
TEST(ExchangeUsage, BucketsTravelWhileTheBackwardPassGoesOn) {
  for (const std::string method : {"dense", "gather"})
    run_local(3, [&](Group& group) {
      std::atomic<int> arrived{0};
      TamperingGroup watching(group, [&](int, int tag, std::span<std::byte>) {
        if (tag < 2) ++arrived;  // of the first bucket
      });
      Side side(watching, small_model(), {.method = method, .bucket_bytes = 4000});
      side.values = gradients(small_model(), group.rank(), 0);
      side.start(8);
      side.start(7);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 4 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      EXPECT_EQ(arrived, 4);  // two messages from each of two ranks
      for (size_t i = 7; i-- > 0;) side.start(i);
      EXPECT_FALSE(side.exchange().finish().skipped);
    });
}

TEST(ExchangeUsage, TensorsNotStartedCountAsZeroAndAreLeftAlone) {
  for (const ExchangeOptions& options : usual_and_odd())
    run_local(3, [&](Group& group) {
      const auto unused = [&](size_t i) {
        return i % 3 == static_cast<size_t>(group.rank()) || i == 7;  // 7: on no rank
      };
      const auto model = small_model();
      Side side(group, model, options);
      const Terms terms = terms_of(options);
      Oracle oracle(3, model, side.exchange().streams(), options.codec, terms.feedback,
                    terms.method->name);
      for (uint64_t step = 0; step < 3; ++step) {
        auto given = all_gradients(model, 3, step);
        for (size_t rank = 0; rank < 3; ++rank)
          for (size_t i = 0; i < model.size(); ++i)
            if (i % 3 == rank || i == 7)
              std::fill(given[rank][i].begin(), given[rank][i].end(), 0.0f);
        const Tensors mean = oracle.step(step, given);
        const Tensors before = gradients(model, group.rank(), step);
        EXPECT_FALSE(side.step(step, unused).skipped);
        for (size_t i = 0; i < model.size(); ++i) {
          if (options.method == "library" && !unused(i)) continue;  // sums in an order of its own
          EXPECT_TRUE(same_bits(side.values[i], unused(i) ? before[i] : mean[i]))
              << options.codec << " tensor " << i << " rank " << group.rank();
        }
      }
    });
}

TEST(ExchangeUsage, AStepOfNothingTakesPart) {
  run_local(3, [](Group& group) {
    Side side(group, small_model(), {});
    const StepReport first = group.rank() == 1 ? side.exchange().finish() : side.step(0);
    EXPECT_FALSE(first.skipped);
    EXPECT_EQ(side.exchange().finish().step, 1u);  // on all ranks
  });
}

TEST(ExchangeUsage, AModelOfNothingHasSteps) {
  run_local(3, [](Group& group) {
    Side side(group, {}, {});
    EXPECT_EQ(side.exchange().finish().step, 0u);
    const StepReport report = side.exchange().finish();
    EXPECT_EQ(report.step, 1u);
    EXPECT_FALSE(report.skipped);
    EXPECT_TRUE(report.streams.empty());
    EXPECT_EQ(report.dense_bytes, 0u);
  });
}

TEST(ExchangeUsage, WaitEndsTheStepWithoutFinish) {
  for (const ExchangeOptions& options : usual_and_odd())
    run_local(3, [&](Group& group) {
      Side side(group, small_model(), options);
      Side plain(group, small_model(), options);
      for (uint64_t step = 0; step < 4; ++step) {
        plain.step(step);
        side.values = gradients(small_model(), group.rank(), step);
        Ticket ticket;
        for (size_t i = 0; i < side.values.size(); ++i) ticket = side.start(i);
        EXPECT_EQ(ticket.step, step);
        EXPECT_EQ(side.exchange().wait(ticket).step, step);
        EXPECT_TRUE(same_bits(side.values, plain.values));
        if (step % 2 == 0) {
          EXPECT_EQ(side.exchange().finish().step, step);  // the same step, not one more
        }
      }
    });
}

TEST(ExchangeUsage, AnyThreadMayWait) {
  run_local(2, [](Group& group) {
    Side side(group, small_model(), {});
    side.values = gradients(small_model(), group.rank(), 0);
    const Ticket ticket = side.start(0);
    auto other = std::async(std::launch::async, [&] { return side.exchange().wait(ticket).step; });
    for (size_t i = 1; i < side.values.size(); ++i) side.start(i);
    EXPECT_EQ(side.exchange().finish().step, 0u);
    EXPECT_EQ(other.get(), 0u);
    EXPECT_EQ(side.exchange().wait(ticket).step, 0u);  // long over
  });
}

// A new exchange with other buckets over the same store goes on as if nothing had happened.
TEST(ExchangeUsage, MemoriesSurviveRebuildingWithOtherBuckets) {
  for (const ExchangeOptions& usual : codecs_and_methods())
    run_local(3, [&](Group& group) {
      ExchangeOptions options = usual;
      options.feedback = "residual";
      Side plain(group, small_model(), options);
      const auto store = std::make_shared<Store>();
      uint64_t step = 0;
      for (const size_t bytes : {400, 100000, 40}) {
        options.bucket_bytes = bytes;
        Side side(group, small_model(), options, store);
        side.exchange().set_step(step);
        for (const uint64_t end = step + 2; step < end; ++step) {
          EXPECT_EQ(side.step(step).step, step);
          plain.step(step);
          EXPECT_TRUE(same_bits(side.values, plain.values)) << options.codec << " " << step;
        }
      }
      EXPECT_TRUE(same_state(store->save(), plain.store().save()));
    });
}

TEST(ExchangeUsage, ASavedStoreContinuesBitForBit) {
  for (const ExchangeOptions& usual : codecs_and_methods())
    for (const Grouping grouping : {Grouping::kTensor, usual.grouping.value_or(Grouping::kModel)})
      run_local(3, [&](Group& group) {
        ExchangeOptions options = usual;
        options.feedback = "residual";
        options.grouping = grouping;
        options.seed = 5;
        Side plain(group, small_model(), options);
        for (uint64_t step = 0; step < 3; ++step) plain.step(step);
        const StateArrays saved = plain.store().save();

        const auto store = std::make_shared<Store>();
        const std::vector<StateArrays> of_all(3, saved);  // this rank takes its own
        ASSERT_TRUE(store->load(of_all, group.rank(), 3).is_ok());
        Side resumed(group, small_model(), options, store);
        resumed.exchange().set_step(3);
        EXPECT_TRUE(store->unclaimed().empty());
        for (uint64_t step = 3; step < 6; ++step) {
          plain.step(step);
          resumed.step(step);
          EXPECT_TRUE(same_bits(resumed.values, plain.values)) << options.codec;
        }
      });
}

// An observer makes an exchange join the tensors of a stream; without one they may stay where they
// are.
TEST(ExchangeUsage, ItDoesNotMatterWhereTheTensorsOfAStreamLie) {
  for (const std::string codec : {"topk:density=0.1", "topk:density=0.1,values=int8", "sidco",
                                  "adacomp", "randomk:shared=false"})
    for (const std::string feedback : {"residual", "residual:beta=0.5,gamma=2", "lowpass", "none"})
      run_local(3, [&](Group& group) {
        ExchangeOptions options{
            .codec = codec, .feedback = feedback, .method = "gather", .grouping = Grouping::kModel};
        Side apart(group, small_model(), options);
        options.observe = [](const StreamSpec&, const Signal&, const Call&) {};
        Side joined(group, small_model(), options);
        for (uint64_t step = 0; step < 6; ++step) {
          const auto take = [&](Side& side) {
            side.values = gradients(small_model(), group.rank(), step);
            if (step == 2 && group.rank() == 1) side.values[7][5] = NAN;
            for (size_t i = side.values.size(); i-- > 0;) side.start(i);
            return side.exchange().finish();
          };
          const StepReport one = take(apart), other = take(joined);
          EXPECT_EQ(one.skipped, step == 2);
          EXPECT_TRUE(same_bits(apart.values, joined.values)) << codec << ", " << feedback;
          EXPECT_EQ(one.streams[0].kept, other.streams[0].kept);
        }
        EXPECT_TRUE(same_state(apart.store().save(), joined.store().save()));
      });
}

TEST(ExchangeUsage, EveryMemoryOfASavedStoreContinuesBitForBit) {
  for (const FeedbackEntry* entry : list_feedbacks())
    for (const std::string codec : {"topk:density=0.1", "fp16", "test-nearest"})
      run_local(3, [&](Group& group) {
        const ExchangeOptions options{.codec = codec, .feedback = std::string(entry->name)};
        Side plain(group, small_model(), options);
        for (uint64_t step = 0; step < 3; ++step) plain.step(step);
        const auto store = std::make_shared<Store>();
        const std::vector<StateArrays> of_all(3, plain.store().save());
        ASSERT_TRUE(store->load(of_all, group.rank(), 3).is_ok());
        Side resumed(group, small_model(), options, store);
        resumed.exchange().set_step(3);
        for (uint64_t step = 3; step < 6; ++step) {
          plain.step(step);
          resumed.step(step);
          EXPECT_TRUE(same_bits(resumed.values, plain.values)) << entry->name;
        }
        EXPECT_TRUE(same_state(store->save(), plain.store().save())) << entry->name;
      });
}

// Objects hold their options: an exchange with other options must not use an old one's encoder.
TEST(ExchangeUsage, AnotherCodecOverTheSameStoreGetsEncodersOfItsOwn) {
  run_local(2, [](Group& group) {
    const auto store = std::make_shared<Store>();
    const ExchangeOptions gather{.codec = "fp16", .feedback = "residual", .method = "gather"};
    ExchangeOptions other = gather;
    other.codec = "adacomp";
    { Side(group, small_model(), gather, store).step(0); }
    const StateArrays residuals = store->save();
    {
      Side side(group, small_model(), other, store);
      EXPECT_TRUE(same_state(store->save(), residuals));  // kept
      side.exchange().set_step(1);
      EXPECT_FALSE(side.step(1).skipped);
    }
  });
}

// A layer more in the model's one stream: what the others are owed must not be lost unseen.
TEST(ExchangeUsage, AMemoryOfOtherTensorsIsRefused) {
  run_local(2, [](Group& group) {
    Store store;
    const ExchangeOptions options{.codec = "sidco:density=0.5"};
    make_exchange(group, store, {{"a", {8}, TensorKind::kLinear}}, options);
    const auto grown = [&] {
      make_exchange(group, store,
                    {{"a", {8}, TensorKind::kLinear}, {"b", {4}, TensorKind::kLinear}}, options);
    };
    EXPECT_THAT(error_of(grown, ErrorCode::kMismatch),
                HasSubstr("'model/feedback' is the memory of other tensors"));
    store.drop("model/feedback");
    EXPECT_NO_THROW(grown());
  });
}

TEST(ExchangeUsage, MisuseIsRefused) {
  run_local(1, [](Group& group) {
    Side side(group, small_model(), {});
    side.values = gradients(small_model(), 0, 0);
    float one = 0;
    Exchange& exchange = side.exchange();
    EXPECT_THAT(error_of([&] { exchange.start(99, {}); }, ErrorCode::kContract), HasSubstr("99"));
    EXPECT_THAT(error_of(
                    [&] {
                      exchange.start(1, {&one, 1});
                    },
                    ErrorCode::kContract),
                HasSubstr("'conv.bias' has 4 values, given were 1"));
    EXPECT_THAT(error_of(
                    [&] {
                      exchange.start(1, {nullptr, 4});
                    },
                    ErrorCode::kContract),
                HasSubstr("no memory"));
    EXPECT_THAT(error_of(
                    [&] {
                      exchange.start(6, {&one, 1, DType::kFloat32, Device::kCuda});
                    },
                    ErrorCode::kUnsupported),
                HasSubstr("'temperature' is on CUDA"));
    EXPECT_THAT(error_of([&] { exchange.wait({1}); }, ErrorCode::kContract),
                HasSubstr("has not begun"));
    side.start(2);
    EXPECT_THAT(error_of([&] { side.start(2); }, ErrorCode::kContract),
                HasSubstr("'norm.weight' is started twice in step 0"));
    EXPECT_THAT(error_of([&] { exchange.set_step(3); }, ErrorCode::kContract),
                HasSubstr("under way"));
    exchange.finish();  // none of it did harm
    EXPECT_EQ(exchange.finish().step, 1u);
  });
}

TEST(ExchangeUsage, StreamsOfTensorsKeepTheirNames) {
  run_local(1, [](Group& group) {
    Side side(group, small_model(), {});
    std::vector<std::string> names;
    for (const StreamSpec& stream : side.exchange().streams()) names.push_back(stream.name);
    EXPECT_EQ(names,
              (std::vector<std::string>{"linear.weight", "temperature", "lstm.weight", "nothing",
                                        "embedding", "conv.weight", "dense:linear.bias"}));
  });
}

}  // namespace
}  // namespace thinwire::testing
