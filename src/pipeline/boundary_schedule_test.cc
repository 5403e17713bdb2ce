// Tests of boundaries whose codec follows a schedule: both ends change together, and memories stay.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/testing/boundary_testing.h"

namespace thinwire::testing {
namespace {

size_t non_zero(const Values& values) {
  return values.size() - static_cast<size_t>(std::count(values.begin(), values.end(), 0.0f));
}

BoundarySpec scheduled(const std::string& codec, const std::string& memory = "none") {
  BoundarySpec spec = spec_of(codec, memory);
  spec.steps_per_epoch = 2;
  return spec;
}

TEST(BoundarySchedule, FollowsPhasesAndCourses) {
  Pair pair(scheduled("fp32 | 1: topk:density=table(0.5;0.25@2) | 3: uniform:bits=8"));
  const Values x = activations(numbers(0, 8), 0);
  for (uint64_t step = 0; step < 9; ++step) {
    const Values got = pair.step(x, {.step = step});
    if (step < 2) expect_same_bits(got, x);
    const size_t most = step < 2 || step >= 6 ? 8 * kSample
                        : step < 4            ? 8 * kSample / 2
                                              : 8 * kSample / 4;
    EXPECT_LE(non_zero(got), most) << step;
    EXPECT_GE(non_zero(got), most - (step < 6 ? 0 : 8)) << step;  // grids have a zero
    EXPECT_LE(pair.sent.size, pair.message.size());
  }
}

// What ef kept at one density is in what is sent at another: the sums of both sides agree.
TEST(BoundarySchedule, LosesNothingThatAMemoryKeeps) {
  Pair pair(scheduled("topk:density=table(0.5;0.125@1) | 3: fp32", "ef"));
  std::vector<double> given(8 * kSample), arrived(8 * kSample);
  for (uint64_t step = 0; step < 7; ++step) {
    const Values x = activations(numbers(0, 8), step);
    const Values got = pair.step(x, {.step = step});
    for (size_t i = 0; i < x.size(); ++i) given[i] += double(x[i]), arrived[i] += double(got[i]);
  }
  for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(arrived[i], given[i], 1e-5) << i;
}

TEST(BoundarySchedule, CachesGoOnAndStayEqual) {
  Pair pair(scheduled("uniform:bits=8 | 2: uniform:bits=2", "aqsgd"));
  for (uint64_t step = 0; step < 12; ++step) {
    const Ids ids = numbers(8 * (step % 2), 8);
    const Values x = activations(ids, step);
    pair.cross(x, {.step = step, .ids = ids});
    EXPECT_EQ(pair.sent.full, step < 2 ? 8u : 0u);
    if (step == 4) {  // the first of the second phase does not count, and comes again
      pair.rollback();
      pair.cross(x, {.step = step, .ids = ids});
    }
    pair.commit();
    expect_same_arrays(estimates(*pair.sender), estimates(*pair.receiver));
  }
}

// Between any two steps, also those of two phases.
TEST(BoundarySchedule, ResumesBitForBit) {
  const BoundarySpec spec = scheduled(
      "topk:density=linear(0.5;0.1;3) | 1: sidco:density=0.25 | 2: redsync:density=0.1", "ef");
  for (uint64_t stop = 1; stop < 7; ++stop) {
    Pair whole(spec);
    BoundarySpec later = spec;
    later.first_step = stop;
    Pair resumed(later);
    for (uint64_t step = 0; step < 8; ++step) {
      if (step == stop) {
        ASSERT_TRUE(resumed.sender->load(whole.sender->save()).is_ok()) << stop;
        ASSERT_TRUE(resumed.receiver->load(whole.receiver->save()).is_ok()) << stop;
      }
      const Values x = activations(numbers(0, 8), step);
      const Values want = whole.step(x, {.step = step});
      if (step < stop) continue;
      expect_same_bits(resumed.step(x, {.step = step}), want);
      ASSERT_EQ(resumed.sent.size, whole.sent.size);
      EXPECT_TRUE(std::equal(whole.bytes().begin(), whole.bytes().end(), resumed.bytes().begin()));
    }
  }
}

TEST(BoundarySchedule, RefusesWhatIsNone) {
  const auto why = [](const BoundarySpec& spec) {
    return make_boundary_sender(spec).status().message();
  };
  EXPECT_NE(why(scheduled("fp32 | topk")).find("must begin with the time"), std::string::npos);
  EXPECT_NE(why(scheduled("fp32 | 2: fp17")).find("fp17"), std::string::npos);
  EXPECT_NE(why(scheduled("topk:density=accordion(0.5;0.1)")).find("not averaged"),
            std::string::npos);
  BoundarySpec noting = scheduled("fp32 | 2: topk");
  noting.note_positions = make_kept_positions();
  EXPECT_NE(why(noting).find("sparse codecs"), std::string::npos);
}

}  // namespace
}  // namespace thinwire::testing
