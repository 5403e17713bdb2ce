// reference: what is sent, what all hold afterwards, and steps that never happened.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/reference.h"

#include <gtest/gtest.h>

#include "feedback/testing/feedback_testing.h"

namespace thinwire::testing {
namespace {

Values minus(const Values& a, std::span<const float> b) {
  Values out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

TEST(Reference, SendsWhatChangedSinceWhatAllTook) {
  const Values start = gradient(0);
  Reference reference(start);
  expect_same_bits(reference.values(), start);
  Values held = start;
  for (uint64_t round = 1; round < 4; ++round) {
    const Values x = gradient(round);
    const Signal signal = reference.prepare(x, {});
    expect_same_bits(signal.values, minus(x, held));
    ASSERT_TRUE(signal.moments);
    EXPECT_TRUE(reference.rest().empty());
    Values taken = gradient(round + 10);  // a frame need not bring x itself
    reference.receive(taken);
    expect_same_bits(reference.values(), held);
    reference.commit();
    expect_same_bits(reference.values(), taken);
    held = taken;
  }
}

TEST(Reference, OfAReceiverIsThatOfTheSender) {
  const Values start = gradient(0), x = gradient(1);
  Reference sender(start), receiver(start);
  sender.prepare(x, {});
  Values taken = gradient(2);
  for (Reference* one : {&sender, &receiver}) {
    one->receive(taken);
    one->commit();
  }
  expect_same_bits(sender.values(), receiver.values());
}

TEST(Reference, ARoundThatDoesNotCountLeavesNoTrace) {
  Reference reference(gradient(0));
  Values taken = gradient(2);
  reference.prepare(gradient(1), {});
  reference.receive(taken);
  reference.rollback();
  expect_same_bits(reference.values(), gradient(0));
  EXPECT_THROW(reference.commit(), Error);
  expect_same_bits(reference.values(), gradient(0));
}

TEST(Reference, IsSavedAsOneArrayAndGoesOn) {
  Reference reference(gradient(0));
  Values taken = gradient(1);
  reference.receive(taken);
  reference.commit();
  const StateArrays saved = reference.save();
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(saved[0].name, "values");
  EXPECT_EQ(saved[0].on_resize, OnResize::kOwedToMean);
  Reference other(gradient(5));
  ASSERT_TRUE(other.load(saved));
  expect_same_bits(other.values(), taken);
  EXPECT_FALSE(other.load({}));
  expect_same_bits(other.values(), taken);
}

}  // namespace
}  // namespace thinwire::testing
