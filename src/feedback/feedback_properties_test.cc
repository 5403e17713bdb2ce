// What every memory of the registry promises, with every option at both ends.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/testing/test_name.h"
#include "feedback/testing/feedback_testing.h"
#include "kernel/for_each_target.h"
#include "kernel/vector_moments.h"
#include "thinwire/store.h"

namespace thinwire::testing {
namespace {

struct Range {
  size_t begin, count;
};

class Memory : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Feedback> make(size_t count = kCount) const {
    return testing::make(GetParam(), count);
  }
};
INSTANTIATE_TEST_SUITE_P(Registry, Memory, ::testing::ValuesIn(feedback_variants()),
                         [](const auto& row) { return test_name(row.param); });

TEST_P(Memory, FirstSendsTheGradientOrAMultiple) {
  const auto memory = make();
  const Values g = gradient(0);
  const auto made = step(*memory, g, 0);
  double dot = 0, square = 0;
  for (size_t i = 0; i < kCount; ++i) {
    dot += double{made.values[i]} * g[i];
    square += double{made.values[i]} * made.values[i];
  }
  EXPECT_GE(dot, 0);  // never uphill
  for (size_t i = 0; i < kCount; ++i) {
    if (square == 0) break;
    ASSERT_TRUE(made.values[i] == 0 || g[i] != 0) << i;
  }
}

TEST_P(Memory, MomentsAreThoseOfTheSignal) {
  const auto memory = make();
  for (uint64_t number = 0; number < 3; ++number) {
    const Values g = gradient(number);
    const Signal signal = memory->prepare(g, {.step = number});
    ASSERT_TRUE(signal.moments.has_value());
    const Moments want = kernel::moments(signal.values);
    EXPECT_EQ(signal.moments->abs_sum, want.abs_sum);
    EXPECT_EQ(signal.moments->square_sum, want.square_sum);
    EXPECT_EQ(signal.moments->abs_max, want.abs_max);
    EXPECT_TRUE(signal.moments->finite);
    EXPECT_TRUE(signal.fresh.empty() || signal.fresh.size() == kCount);
    EXPECT_TRUE(memory->rest().empty() || memory->rest().size() == kCount);
    memory->rollback();
    step(*memory, g, number);
  }
}

// Without a copy, where the memory can.
TEST_P(Memory, WhatIsOwedIsTheNormOfWhatIsSaved) {
  const auto memory = make();
  for (uint64_t number = 0; number < 3; ++number) step(*memory, gradient(number), number);
  const double saved = memory->Stateful::owed_squares();
  EXPECT_NEAR(memory->owed_squares(), saved, 1e-6 * saved);
}

void expect_equal(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;  // -0 is 0
}

void expect_equal_floats(const StateArrays& got, const StateArrays& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].type != StateType::kFloat32) continue;
    ASSERT_EQ(got[i].data.size(), want[i].data.size());
    Values a(got[i].data.size() / sizeof(float)), b(a.size());
    copy_state(got, got[i].name, std::span(a)).or_throw();
    copy_state(want, want[i].name, std::span(b)).or_throw();
    expect_equal(a, b);
  }
}

// Being told that the codec is lossless changes neither what is sent nor what is kept. Step 5
// begins with a state that owes something.
void expect_same_where_told(const std::string& spec) {
  auto told = make(spec);
  const auto untold = make(spec);
  const bool lossless[] = {true, true, false, false, false, true, true, false, true, true};
  for (uint64_t number = 0; number < std::size(lossless); ++number) {
    const Call call{.step = number, .ranks = 2, .lossless = lossless[number]};
    told->prepare(gradient(99), {.step = number, .ranks = 2, .lossless = true});  // left open
    if (number % 2 == 0) told->rollback();
    if (number == 5) {
      const StateArrays state = told->save();
      told = make(spec);
      told->load(state).or_throw();
    }
    const Values g = gradient(number);
    const auto& encode = lossless[number] ? send_all : send_some;
    const Signal signal = told->prepare(g, call);
    const Values values = floats(signal.values);
    const Moments moments = kernel::moments(values);
    EXPECT_EQ(signal.moments->square_sum, moments.square_sum);
    EXPECT_EQ(signal.moments->abs_max, moments.abs_max);
    encode(told->rest(), number);
    told->sent(g, 0, kCount / 2);
    told->sent(g, kCount / 2, kCount - kCount / 2);
    const Values same = floats(untold->prepare(g, {.step = number, .ranks = 2}).values);
    expect_equal(values, same);
    encode(untold->rest(), number);
    untold->sent(g, 0, kCount);
    Values mean = values, expected = same;
    told->receive(mean);
    untold->receive(expected);
    expect_equal(mean, expected);
    told->commit();
    untold->commit();
    expect_equal_floats(told->save(), untold->save());
  }
}

TEST_P(Memory, IsTheSameWhereItKnowsThatAllIsSent) { expect_same_where_told(GetParam()); }

TEST(Memories, ClipAndDampenWhereTheyKnowThatAllIsSent) {
  expect_same_where_told("dgc:clip=0.5,nesterov=true,dampening=0.1");
  expect_same_where_told("dgc:clip=0.5,dampening=0.1");
  expect_same_where_told("ahead:nesterov=true,dampening=0.1");
}

TEST_P(Memory, FindsWhatIsNotFiniteWhereItKnowsThatAllIsSent) {
  const auto memory = make();
  Values g = gradient(0);
  g[kCount / 3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(memory->prepare(g, {.lossless = true}).moments->finite);
  memory->rollback();
}

// A signal formed in parts, in any order, is the one formed at once, and so is what follows.
TEST_P(Memory, PartsAreTheWhole) {
  const auto whole = make(), parts = make();
  const Range kParts[] = {{9000, 1007}, {0, 0}, {0, 4000}, {4000, 5000}};
  for (uint64_t number = 0; number < 6; ++number) {
    const Values g = gradient(number);
    const Signal want = whole->prepare(g, {.step = number});
    Values got(kCount), fresh(kCount);
    for (const Range& part : kParts) {
      const auto signal = parts->prepare_part(std::span(g).subspan(part.begin, part.count),
                                              part.begin, {.step = number});
      if (!signal) GTEST_SKIP() << "wants the whole";
      ASSERT_EQ(signal->values.size(), part.count);
      if (parts->only_adds()) {
        EXPECT_EQ(signal->values.data(), parts->rest().data() + part.begin);
      }
      EXPECT_EQ(signal->moments->square_sum, kernel::moments(signal->values).square_sum);
      const auto at = static_cast<std::ptrdiff_t>(part.begin);
      std::copy(signal->values.begin(), signal->values.end(), got.begin() + at);
      if (!want.fresh.empty()) {
        ASSERT_EQ(signal->fresh.size(), part.count);
        std::copy(signal->fresh.begin(), signal->fresh.end(), fresh.begin() + at);
      }
    }
    expect_same_bits(got, want.values);
    if (!want.fresh.empty()) expect_same_bits(fresh, want.fresh);
    Values means[2];
    for (Feedback* memory : {whole.get(), parts.get()}) {
      const bool alone = memory == parts.get() && memory->only_adds();  // without sent and receive
      send_some(memory->rest(), number);
      for (const Range& part : kParts)
        if (!alone) memory->sent(g, part.begin, part.count);
      if (number % 3 == 1) {
        memory->rollback();
        continue;
      }
      Values mean = gradient(number, 7);
      if (!alone) memory->receive(mean);
      memory->commit();
      means[memory == parts.get()] = mean;
    }
    expect_same_bits(means[1], means[0]);
    expect_same_state(parts->save(), whole->save());
  }
  EXPECT_THROW(parts->prepare_part(gradient(0), 1, {}), Error);
}

// The positions that a codec kept say where to look; a value that was kept and decodes to zero is
// not sent.
TEST_P(Memory, PositionsLeaveWhatAPassLeaves) {
  const auto by_pass = make_feedback(GetParam(), several_tensors()).value();
  const auto by_positions = make_feedback(GetParam(), several_tensors()).value();
  if (by_positions->most_positions() == 0) GTEST_SKIP() << "takes no positions";
  for (uint64_t number = 0; number < 8; ++number) {
    const uint64_t apart = number % 2 == 0 ? 20 : 300;  // more than any memory wants, and few
    const Values g = gradient(number);
    std::vector<uint32_t> positions;
    for (Feedback* memory : {by_pass.get(), by_positions.get()}) {
      memory->set_momentum(momenta_in(number));
      memory->prepare(g, {.step = number});
      positions.clear();
      for (uint32_t i = 0; i < kCount; ++i) {
        if (number % 4 < 2 && i / 1000 % 2 == 0) continue;  // none for a while
        const uint64_t kind = (i * 7 + number) % apart;
        if (kind < 3) positions.push_back(i);  // of kind 2 nothing is sent
        if (kind == 0) memory->rest()[i] = 0;
        if (kind == 1) memory->rest()[i] *= 0.5f;
      }
    }
    by_pass->sent(g, 0, kCount);
    by_positions->sent_at(g, positions);
    for (Feedback* memory : {by_pass.get(), by_positions.get()}) memory->commit();
    expect_same_state(by_positions->save(), by_pass->save());
  }
}

// Whatever a step had come to when it was given up.
TEST_P(Memory, RollbackLeavesNoTrace) {
  const auto plain = make(), disturbed = make();
  for (uint64_t number = 0; number < 6; ++number) {
    Values bad = gradient(100 + number);
    if (number % 2 == 0) bad[number * 17] = std::numeric_limits<float>::quiet_NaN();
    const Signal signal = disturbed->prepare(bad, {.step = number});
    EXPECT_EQ(signal.moments->finite, number % 2 != 0);
    if (number % 3 > 0) {
      std::fill(disturbed->rest().begin(), disturbed->rest().end(), 5.0f);
      disturbed->sent(bad, 0, kCount / 2);
    }
    if (number % 3 > 1) disturbed->sent(bad, kCount / 2, kCount - kCount / 2);
    disturbed->rollback();
    const Values g = gradient(number);
    const auto a = step(*plain, g, number), b = step(*disturbed, g, number);
    expect_same_bits(b.values, a.values);
    expect_same_bits(b.mean, a.mean);
    expect_same_state(disturbed->save(), plain->save());
  }
}

TEST_P(Memory, ComesBackBitForBit) {
  const auto memory = make();
  for (uint64_t number = 0; number < 5; ++number) {
    const auto again = make();
    step(*again, gradient(50), 50);  // what it holds is replaced
    again->prepare(gradient(51), {});
    ASSERT_TRUE(again->load(memory->save()));
    expect_same_state(again->save(), memory->save());
    const Values g = gradient(number);
    const auto a = step(*memory, g, number), b = step(*again, g, number);
    expect_same_bits(b.values, a.values);
    expect_same_bits(b.mean, a.mean);
    expect_same_state(again->save(), memory->save());
  }
}

TEST_P(Memory, ForeignStateIsRefusedAndChangesNothing) {
  const auto memory = make();
  step(*memory, gradient(0), 0);
  const StateArrays before = memory->save();
  if (before.empty()) return;
  for (size_t which = 0; which < before.size(); ++which)
    for (int how = 0; how < 3; ++how) {
      StateArrays bad = make()->save();
      if (how == 0) bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(which));
      if (how == 1) bad[which].data.pop_back();
      if (how == 2) bad[which].type = StateType::kInt64;
      EXPECT_EQ(memory->load(bad).code(), ErrorCode::kMismatch);
      expect_same_state(memory->save(), before);
    }
  EXPECT_EQ(memory->load(make(kCount - 1)->save()).code(), ErrorCode::kMismatch);
  expect_same_state(memory->save(), before);
}

// (1/n) x the sum over ranks is kept: of what is owed, of velocities, of estimates. What all ranks
// share stays what it is.
TEST_P(Memory, AnotherWorldSizeKeepsTheMean) {
  constexpr uint32_t kBefore = 3;
  const bool eight_bits = GetParam().starts_with("loco");
  std::vector<StateArrays> states;
  for (uint32_t rank = 0; rank < kBefore; ++rank) {
    const auto memory = make();
    for (uint64_t number = 0; number < 3; ++number) step(*memory, gradient(number, rank), number);
    states.push_back(memory->save());
    for (size_t a = 0; a < states[0].size(); ++a)  // one round had made them alike
      if (states[0][a].on_resize == OnResize::kShared) states.back()[a] = states[0][a];
  }
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<StateArrays> stored = states;
    for (StateArrays& arrays : stored)
      for (StateArray& array : arrays) array.name = "w/" + array.name;
    Store store;
    ASSERT_TRUE(store.load(stored, rank, 2));
    const StateArrays loaded = store.open<Feedback>("w", [&] { return make(); }).save();
    ASSERT_EQ(loaded.size(), states[0].size());
    for (size_t a = 0; a < loaded.size(); ++a) {
      if (loaded[a].type != StateType::kFloat32) continue;  // another form of one that is
      if (loaded[a].on_resize == OnResize::kShared) {
        EXPECT_EQ(loaded[a].data, states[0][a].data) << loaded[a].name;
        continue;
      }
      EXPECT_EQ(loaded[a].on_resize, OnResize::kOwedToMean) << loaded[a].name;
      std::vector<Values> old(kBefore, Values(kCount));
      Values got(kCount);
      for (uint32_t r = 0; r < kBefore; ++r)
        ASSERT_TRUE(copy_state(states[r], loaded[a].name, std::span<float>(old[r])));
      ASSERT_TRUE(copy_state(loaded, loaded[a].name, std::span<float>(got)));
      for (size_t i = 0; i < kCount; ++i) {
        const double mean = (double{old[0][i]} + old[1][i] + old[2][i]) / kBefore;
        if (eight_bits) {
          ASSERT_NEAR(got[i], mean, 0.02) << loaded[a].name << " " << i;  // 127 steps to about 5
        } else {
          ASSERT_EQ(got[i], static_cast<float>(mean)) << loaded[a].name << " " << i;
        }
      }
    }
  }
}

TEST_P(Memory, EveryTargetGivesTheSameBits) {
  std::vector<StateArrays> of_target;
  std::vector<Values> means;
  kernel::for_each_target([&](std::string_view) {
    const auto memory = make();
    Values mean;
    for (uint64_t number = 0; number < 3; ++number)
      mean = step(*memory, gradient(number), number).mean;
    of_target.push_back(memory->save());
    means.push_back(mean);
  });
  for (size_t i = 1; i < means.size(); ++i) {
    expect_same_state(of_target[i], of_target[0]);
    expect_same_bits(means[i], means[0]);
  }
}

TEST_P(Memory, StartsAtZeroAndStaysThereOnZeros) {
  const auto memory = make();
  const auto expect_zeros = [&] {
    for (const StateArray& array : memory->save()) {
      if (array.type != StateType::kFloat32) continue;
      Values values(kCount);
      ASSERT_TRUE(copy_state({array}, array.name, std::span<float>(values)));
      for (const float value : values) ASSERT_EQ(value, 0.0f);
    }
  };
  expect_zeros();
  for (uint64_t number = 0; number < 3; ++number)
    for (const float value : step(*memory, Values(kCount), number).mean) ASSERT_EQ(value, 0.0f);
  expect_zeros();
}

TEST_P(Memory, ExtremesAreFiniteOrSaidNotToBe) {
  const float largest = std::numeric_limits<float>::max();
  const float smallest = std::numeric_limits<float>::denorm_min();
  for (const float value : {largest, -largest, smallest, -smallest, 1.0f}) {
    const auto memory = make();
    const Values g(kCount, value);
    for (uint64_t number = 0; number < 3; ++number) {
      const Signal signal = memory->prepare(g, {.step = number});
      bool finite = true;
      for (const float x : signal.values) finite = finite && std::isfinite(x);
      if (!signal.moments->finite) {  // the exchange skips such a step
        memory->rollback();
        continue;
      }
      ASSERT_TRUE(finite);
      memory->rollback();
      step(*memory, g, number, [](std::span<float> rest, uint64_t) {
        for (size_t i = 0; i < rest.size(); i += 2) rest[i] = 0;
      });
      for (const StateArray& array : memory->save()) {
        if (array.type != StateType::kFloat32) continue;
        Values kept(kCount);
        ASSERT_TRUE(copy_state({array}, array.name, std::span<float>(kept)));
        for (const float x : kept) ASSERT_TRUE(std::isfinite(x)) << array.name;
      }
    }
  }
}

TEST_P(Memory, ShortStreamsAreFine) {
  for (const size_t count : {0, 1, 2, 3, 17}) {
    const auto memory = make(count);
    for (uint64_t number = 0; number < 3; ++number)
      EXPECT_EQ(step(*memory, gradient(number, 0, count), number).mean.size(), count);
    const auto again = make(count);
    ASSERT_TRUE(again->load(memory->save()));
    expect_same_state(again->save(), memory->save());
  }
}

TEST_P(Memory, ContractsAreChecked) {
  const auto memory = make();
  EXPECT_THROW(memory->prepare(Values(kCount - 1), {}), Error);
  if (memory->save().empty()) return;  // it remembers nothing, whatever it is told
  EXPECT_THROW(memory->commit(), Error);
  memory->prepare(gradient(0), {});
  memory->rollback();
  EXPECT_THROW(memory->commit(), Error);
}

TEST(Feedback, UnknownNamesAndOptionsAreRefusedWithTheKnownOnes) {
  const StreamSpec stream = single_tensor({.name = "w", .shape = {3}});
  const auto unknown = make_feedback("residuel", stream);
  EXPECT_EQ(unknown.status().code(), ErrorCode::kUnknownName);
  EXPECT_THAT(unknown.status().message(), ::testing::HasSubstr("none, residual, lowpass, dgc"));
  EXPECT_EQ(make_feedback("residual:alpha=0.9", stream).status().code(), ErrorCode::kUnknownName);
  EXPECT_EQ(make_feedback("residual:beta=1.1", stream).status().code(), ErrorCode::kBadOption);
}

TEST(Feedback, NamesAreThereOnce) {
  std::vector<std::string_view> names;
  for (const FeedbackEntry* entry : list_feedbacks()) {
    names.push_back(entry->name);
    EXPECT_FALSE(entry->summary.empty());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace thinwire::testing
