// Tests that both ends remember the same bits, whatever is skipped, spilled, saved or invalidated.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <limits>

#include "pipeline/estimate_store.h"
#include "pipeline/testing/boundary_testing.h"
#include "thinwire/store.h"

namespace thinwire::testing {
namespace {

constexpr size_t kSamples = 101;  // of the data: batches of 8, the last of 5
constexpr size_t kBatches = 13;

Visit visit_of(uint64_t step, const Ids& ids) { return {.step = step, .ids = ids}; }

// Batch `batch` of the epoch's own order.
Ids batch_of(uint64_t epoch, size_t batch) {
  const auto order = random_permutation({.seed = 5, .step = epoch}, kSamples);
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(8 * batch);
  return {begin, batch + 1 < kBatches ? begin + 8 : order.end()};
}

// All steps of some epochs; those in `skip` are rolled back at one end before and at the other
// after the message came, and taken again with other values.
std::vector<Values> run_epochs(Pair& pair, uint64_t first, uint64_t end, bool skip = true) {
  std::vector<Values> arrived;
  for (uint64_t step = first * kBatches; step < end * kBatches; ++step) {
    const uint64_t epoch = step / kBatches;
    const Ids ids = batch_of(epoch, step % kBatches);
    if (skip && step % 5 == 2) {
      pair.cross(activations(ids, 1000 + epoch), visit_of(step, ids));
      pair.rollback();
    }
    if (skip && step % 7 == 3) {
      Values x = activations(ids, epoch);
      x[x.size() / 2] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(pair.send(x, visit_of(step, ids)).finite);
      EXPECT_EQ(pair.receiver->decode(pair.bytes(), visit_of(step, ids), x).code(),
                ErrorCode::kNonFinite);
      EXPECT_THROW(pair.sender->commit(), Error);
      EXPECT_THROW(pair.receiver->commit(), Error);
      pair.rollback();
    }
    arrived.push_back(pair.step(activations(ids, epoch), visit_of(step, ids)));
  }
  return arrived;
}

class EveryCache : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryCache, BothEndsHaveTheSameBitsOverTwentyEpochs) {
  for (const bool per_sample : {false, true}) {
    Pair pair(spec_of("uniform:bits=2,rounding=random,block=64", GetParam(), per_sample));
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      run_epochs(pair, epoch, epoch + 1);
      const StateArrays own = estimates(*pair.sender);
      ASSERT_EQ(own.size(), 5u);
      expect_same_arrays(estimates(*pair.receiver), own);
    }
  }
}

TEST_P(EveryCache, SkippedStepsLeaveNoTrace) {
  Pair skipping(spec_of("topk:density=0.25", GetParam()));
  Pair straight(spec_of("topk:density=0.25", GetParam()));
  EXPECT_EQ(run_epochs(skipping, 0, 3), run_epochs(straight, 0, 3, false));
  expect_same_arrays(skipping.sender->save(), straight.sender->save());
}

TEST_P(EveryCache, ResumesBitForBit) {
  const BoundarySpec spec = spec_of("int4", GetParam());
  Pair whole(spec), second(spec);
  run_epochs(whole, 0, 2);
  second.sender->load(whole.sender->save()).or_throw();
  second.receiver->load(whole.receiver->save()).or_throw();
  EXPECT_EQ(run_epochs(second, 2, 4), run_epochs(whole, 2, 4));
  expect_same_arrays(second.sender->save(), whole.sender->save());
  expect_same_arrays(estimates(*second.receiver), estimates(*second.sender));
}

TEST_P(EveryCache, ABudgetChangesNothing) {
  BoundarySpec spec = spec_of("int4", GetParam());
  Pair plain(spec);
  spec.cache_budget = 10 * kSample * 4;
  spec.spill_folder = std::filesystem::temp_directory_path().string();
  Pair spilling(spec);
  EXPECT_EQ(run_epochs(spilling, 0, 4), run_epochs(plain, 0, 4));
  expect_same_arrays(spilling.sender->save(), plain.sender->save());
  expect_same_arrays(spilling.receiver->save(), plain.receiver->save());
}

INSTANTIATE_TEST_SUITE_P(Precisions, EveryCache,
                         ::testing::Values("aqsgd", "aqsgd:cache=fp16",
                                           "aqsgd:cache=bf16,first=bf16"));

TEST(BoundaryState, ErrorFeedbackResumesBitForBit) {
  for (const std::string memory : {"ef", "efmixed:density=0.25", "ef21"}) {
    const BoundarySpec spec = spec_of("topk:density=0.25", memory);
    Pair whole(spec), second(spec);
    const auto run = [&](Pair& pair, uint64_t step) {
      return pair.step(activations(numbers(step, 8), step), {.step = step});
    };
    for (uint64_t step = 0; step < 3; ++step) run(whole, step);
    second.sender->load(whole.sender->save()).or_throw();
    second.receiver->load(whole.receiver->save()).or_throw();
    for (uint64_t step = 3; step < 6; ++step) EXPECT_EQ(run(second, step), run(whole, step));
  }
}

TEST(BoundaryState, AStateThatDoesNotFitChangesNothing) {
  Pair pair(spec_of("int4", "aqsgd"));
  run_epochs(pair, 0, 1);
  const StateArrays before = pair.sender->save();
  const auto refused = [&](const StateArrays& arrays) {
    EXPECT_EQ(pair.sender->load(arrays).code(), ErrorCode::kMismatch);
    expect_same_arrays(pair.sender->save(), before);
  };
  refused({});
  refused(Pair(spec_of("int4", "aqsgd:cache=fp16")).sender->save());
  refused(Pair(spec_of("int4", "aqsgd:key=batch")).sender->save());
  for (size_t i = 0; i < before.size(); ++i) {
    StateArrays other = before;
    other[i].data.pop_back();
    refused(other);
    other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
    refused(other);
  }
  StateArrays not_finite = before;
  for (StateArray& array : not_finite)
    if (array.name == "estimates/values") std::fill_n(array.data.begin(), 4, std::byte{0xff});
  refused(not_finite);
  StateArrays twice = before;
  for (StateArray& array : twice)
    if (array.name == "estimates/keys") std::copy_n(array.data.begin(), 8, array.data.begin() + 8);
  refused(twice);
  StateArrays more = before;
  more.push_back(make_state("other", std::span<const float>(), OnResize::kCopy));
  refused(more);
}

TEST(BoundaryState, EndsThatRememberDifferentThingsSaySo) {
  const Ids ids = numbers(0, 8);
  const Values x = activations(ids, 0);
  Values out(x.size());
  const auto refuses = [&](Pair& pair) {
    pair.send(x, visit_of(9, ids));
    const Status status = pair.receiver->decode(pair.bytes(), visit_of(9, ids), out);
    EXPECT_EQ(status.code(), ErrorCode::kMismatch);
    EXPECT_NE(status.message().find("invalidate"), std::string::npos) << status.message();
    pair.rollback();
  };
  Pair one_forgot(spec_of("int4", "aqsgd"));
  one_forgot.step(x, visit_of(0, ids));
  one_forgot.receiver->invalidate();
  refuses(one_forgot);
  one_forgot.sender->invalidate();
  one_forgot.step(x, visit_of(1, ids));
  EXPECT_EQ(one_forgot.sent.full, 8u);

  Pair one_skipped(spec_of("int4", "aqsgd"));
  one_skipped.step(x, visit_of(0, ids));
  one_skipped.cross(x, visit_of(1, ids));
  one_skipped.sender->commit();
  one_skipped.receiver->rollback();
  refuses(one_skipped);
}

TEST(BoundaryState, IdsThatMeanNothingAreErrors) {
  Pair pair(spec_of("int4", "aqsgd"));
  const Values x = activations(numbers(0, 8), 0);
  const Ids twice = {0, 1, 2, 3, 4, 5, 6, 2}, few = {1, 2};
  for (const Ids& ids : {twice, few, Ids{}}) {
    EXPECT_THROW(pair.send(x, visit_of(0, ids)), Error);
    pair.rollback();
    Values out(x.size());
    EXPECT_THROW((void)pair.receiver->decode({}, visit_of(0, ids), out), Error);
    pair.rollback();
  }
  BoundarySpec spec = spec_of("int4", "aqsgd");
  spec.micro_batches = 2;
  Pair halves(spec);
  halves.cross(x, {.ids = numbers(0, 8)});
  EXPECT_THROW(halves.send(x, {.micro_batch = 1, .ids = numbers(7, 8)}), Error);
}

TEST(BoundaryState, ABatchKeepsItsSamples) {
  Pair pair(spec_of("int4", "aqsgd:key=batch"));
  const Ids ids = numbers(0, 8), others = numbers(1, 8), backwards = {7, 6, 5, 4, 3, 2, 1, 0};
  const Values x = activations(ids, 0);
  pair.step(x, {.ids = ids, .batch = 3});
  const StateArrays before = pair.sender->save();
  for (const Ids& changed : {others, backwards, numbers(0, 7)}) {
    const Values some(changed.size() * kSample, 1.0f);
    try {
      pair.send(some, {.step = 1, .ids = changed, .batch = 3});
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_NE(std::string(error.what()).find("batch 3"), std::string::npos);
    }
    pair.rollback();
  }
  expect_same_arrays(pair.sender->save(), before);
  pair.step(x, {.step = 1, .ids = ids, .batch = 3});
}

TEST(BoundaryState, WholeBatchesWhereTheMemoryHasTheirShape) {
  for (const char* memory : {"ef", "efmixed", "ef21"}) {
    Pair pair(spec_of("topk:density=0.25", memory));
    EXPECT_THROW(pair.send(Values(7 * kSample), {}), Error);
  }
  Pair plain(spec_of("topk:density=0.25", "none"));
  const Values x = activations(numbers(0, 7), 0);
  EXPECT_NO_THROW(plain.step(x, {}));
  EXPECT_THROW(plain.send(Values(7 * kSample + 1), {}), Error);
  EXPECT_THROW(plain.send(Values(9 * kSample), {}), Error);
  EXPECT_THROW(plain.send(Values(), {}), Error);
}

TEST(BoundaryState, AMicroBatchPassesOnceInAStep) {
  Pair pair(spec_of("int4", "none"));
  const Values x = activations(numbers(0, 8), 0);
  pair.cross(x, {});
  EXPECT_THROW(pair.send(x, {}), Error);
  EXPECT_THROW(pair.send(x, {.micro_batch = 1}), Error);
  pair.rollback();
  EXPECT_NO_THROW(pair.step(x, {}));
}

// A step of which one micro-batch came through and the next did not is forgotten whole.
// Whatever passed before it and behind it.
TEST(BoundaryState, AStepWithAMicroBatchThatFailedDoesNotCount) {
  for (size_t bad = 0; bad < 3; ++bad) {
    BoundarySpec spec = spec_of("topk:density=0.25", "none");
    spec.micro_batches = 3;
    Pair pair(spec);
    for (size_t i = 0; i < 3; ++i) {
      Values x = activations(numbers(8 * i, 8), 0);
      if (i == bad) x[5] = std::numeric_limits<float>::infinity();
      Values arrived(x.size());
      pair.send(x, {.micro_batch = i});
      EXPECT_EQ(pair.sent.finite, i != bad);
      EXPECT_EQ(pair.receiver->decode(pair.bytes(), {.micro_batch = i}, arrived).is_ok(), i != bad);
    }
    EXPECT_THROW(pair.sender->commit(), Error) << bad;
    EXPECT_THROW(pair.receiver->commit(), Error) << bad;
    pair.rollback();
    pair.commit();
  }
}

TEST(BoundaryState, WhatASkippedStepHadIsNotKeptByTheNext) {
  BoundarySpec spec = spec_of("int4", "aqsgd");
  spec.micro_batches = 2;
  Pair pair(spec);
  const Ids first = numbers(0, 8), second = numbers(8, 8);
  pair.cross(activations(first, 0), {.ids = first});
  pair.rollback();
  pair.cross(activations(second, 0), {.micro_batch = 1, .ids = second});
  pair.commit();
  pair.cross(activations(first, 1), {.step = 1, .ids = first});
  EXPECT_EQ(pair.sent.full, 8u);
  pair.cross(activations(second, 1), {.step = 1, .micro_batch = 1, .ids = second});
  EXPECT_EQ(pair.sent.full, 0u);
}

TEST(BoundaryState, LivesInAStore) {
  const BoundarySpec spec = spec_of("topk:density=0.25", "aqsgd");
  const auto make = [&] { return make_boundary_sender(spec).value(); };
  Store store, resumed;
  auto& sender = store.open<BoundarySender>("cut/forward", make);
  std::vector<std::byte> message(sender.max_message_size());
  const Ids ids = numbers(0, 8);
  sender.encode(activations(ids, 0), visit_of(0, ids), message);
  sender.commit();
  resumed.load({store.save()}, 0, 1).or_throw();
  auto& again = resumed.open<BoundarySender>("cut/forward", make);
  expect_same_arrays(again.save(), sender.save());
  EXPECT_EQ(again.encode(activations(ids, 1), visit_of(1, ids), message).full, 0u);
}

// Three estimates of 32 bytes are within the budget; without a folder there is no room for others.
TEST(EstimateStore, FillsItsBudgetBeforeItSpills) {
  EstimateStore store({.count = 8, .format = ValueFormat::kFp32, .budget = 100, .folder = ""});
  store.reserve(3);
  EXPECT_THAT([&] { store.reserve(4); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("no folder to spill to")));
}

TEST(EstimateStore, SpillsWhatIsBeyondTheBudget) {
  EstimateStore store({.count = 8,
                       .format = ValueFormat::kFp32,
                       .budget = 100,
                       .folder = std::filesystem::temp_directory_path().string()});
  const auto estimate = [](uint64_t key) {
    Values values(8);
    for (size_t i = 0; i < 8; ++i) values[i] = static_cast<float>(key) + 0.125f * float(i);
    return values;
  };
  for (uint64_t key = 0; key < 50; ++key) {
    store.reserve(1);
    store.write(1000 - key, key, estimate(key));
  }
  for (uint64_t key = 0; key < 50; ++key) {
    Values values(8);
    store.read(*store.find(1000 - key), values);
    EXPECT_EQ(values, estimate(key));
    EXPECT_EQ(store.tag(*store.find(1000 - key)), key);
  }
  EXPECT_FALSE(store.find(0));
}

TEST(BoundaryState, NoRoomIsAnErrorThatLeavesAllAsItWas) {
  for (const std::string folder : {"", "/nonexistent"}) {
    BoundarySpec spec = spec_of("int4", "aqsgd");
    spec.cache_budget = 8 * kSample * 4;
    spec.spill_folder = folder;
    Pair pair(spec);
    const Ids first = numbers(0, 8), second = numbers(4, 8);
    pair.step(activations(first, 0), visit_of(0, first));
    const StateArrays before = pair.sender->save();
    try {
      pair.send(activations(second, 1), visit_of(1, second));
      ADD_FAILURE() << "there was room";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), folder.empty() ? ErrorCode::kBadOption : ErrorCode::kIo);
    }
    pair.rollback();
    expect_same_arrays(pair.sender->save(), before);
    pair.step(activations(first, 1), visit_of(1, first));
  }
}

}  // namespace
}  // namespace thinwire::testing
