// Tests of plans: which tensors share a stream, which are sent together, and in which order.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace thinwire {
namespace {

const std::vector<TensorSpec> kModel = {
    {"a", {100}, TensorKind::kLinear},  {"a.bias", {10}, TensorKind::kBias},
    {"b", {50}, TensorKind::kLinear},   {"b.bias", {5}, TensorKind::kBias},
    {"none", {0}, TensorKind::kLinear}, {"c", {7}, TensorKind::kOther}};

PlanOptions options(size_t bucket_values, bool divisible = false) {
  return {.plain_kinds = {TensorKind::kBias, TensorKind::kNorm},
          .bucket_bytes = 4 * bucket_values,
          .sections = {{.grouping = Grouping::kTensor, .divisible = divisible}}};
}

// "c none b | a", with [begin, end) for parts of a stream.
std::string text(const Plan& plan) {
  std::string all;
  for (const Bucket& bucket : plan.buckets) {
    if (!all.empty()) all += "| ";
    for (const Piece& piece : bucket) {
      const PlannedStream& stream = plan.streams[piece.stream];
      all += stream.spec.name;
      if (piece.count != stream.spec.count())
        all += "[" + std::to_string(piece.begin) + "," + std::to_string(piece.begin + piece.count) +
               ")";
      all += " ";
    }
  }
  return all;
}

TEST(Plan, TensorsTravelFromLastToFirst) {
  const Plan plan = make_plan(kModel, options(60));
  EXPECT_EQ(text(plan), "c none b dense:b.bias | a dense:a.bias ");
  EXPECT_EQ(plan.streams[0].tensors, (std::vector<size_t>{5}));
  EXPECT_TRUE(plan.streams[3].plain);
  EXPECT_FALSE(plan.streams[2].plain);
}

TEST(Plan, PlainTensorsOfABucketAreOneStream) {
  const Plan plan = make_plan(kModel, options(1000));
  EXPECT_EQ(text(plan), "c none b a dense:b.bias ");
  const PlannedStream& plain = plan.streams.back();
  EXPECT_EQ(plain.tensors, (std::vector<size_t>{3, 1}));
  EXPECT_EQ(plain.spec.count(), 15u);
}

TEST(Plan, TheWholeModelIsOneStreamInTheGivenOrder) {
  PlanOptions whole = options(60);
  whole.sections[0].grouping = Grouping::kModel;
  const Plan plan = make_plan(kModel, whole);
  EXPECT_EQ(text(plan), "model ");
  EXPECT_EQ(plan.streams[0].tensors, (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plan.streams[0].spec.count(), 172u);
  EXPECT_FALSE(plan.streams[0].plain);
}

TEST(Plan, DivisibleStreamsAreCutIntoEqualParts) {
  EXPECT_EQ(text(make_plan(kModel, options(60, true))),
            "c none b[0,24) | b[24,50) dense:b.bias | a[0,55) | a[55,100) dense:a.bias ");
}

TEST(Plan, EveryValueTravelsExactlyOnceWhateverTheBucketSize) {
  for (const bool divisible : {false, true})
    for (const Grouping grouping : {Grouping::kTensor, Grouping::kModel})
      for (const size_t size : {0, 1, 2, 3, 7, 50, 61, 62, 63, 171, 172, 173, 10000}) {
        PlanOptions cut = options(size, divisible);
        cut.sections[0].grouping = grouping;
        const Plan plan = make_plan(kModel, cut);
        std::vector<size_t> next(plan.streams.size());  // pieces of a stream come in order
        std::vector<bool> seen(plan.streams.size());
        for (const Bucket& bucket : plan.buckets) {
          EXPECT_FALSE(bucket.empty());
          for (const Piece& piece : bucket) {
            EXPECT_EQ(piece.begin, next[piece.stream]);
            next[piece.stream] += piece.count;
            seen[piece.stream] = true;
          }
        }
        std::vector<int> uses(kModel.size());
        for (size_t i = 0; i < plan.streams.size(); ++i) {
          EXPECT_TRUE(seen[i]);
          EXPECT_EQ(next[i], plan.streams[i].spec.count());
          for (const size_t tensor : plan.streams[i].tensors) ++uses[tensor];
        }
        EXPECT_EQ(uses, std::vector<int>(kModel.size(), 1));
      }
}

TEST(Plan, PartsOfDivisibleStreamsFitTheBucket) {
  for (const size_t size : {1, 2, 3, 7, 50, 61, 171, 172, 173}) {
    for (const Bucket& bucket : make_plan(kModel, options(size, true)).buckets) {
      size_t total = 0;
      for (const Piece& piece : bucket) total += piece.count;
      EXPECT_LE(total, size);
    }
  }
}

// Of sections 0 and 1: all but these two tensors, and these.
PlanOptions in_two(size_t bucket_values, Grouping first, Grouping second, bool divisible = false) {
  PlanOptions two = options(bucket_values);
  two.sections = {{.grouping = first}, {.grouping = second, .divisible = divisible}};
  two.section_of = {0, 0, 1, 0, 0, 1};  // b and c
  return two;
}

// A bucket stands where the backward pass completes it: that of b and c when b is there, which is
// before the other is full, or after.
TEST(Plan, BucketsHoldTensorsOfOneSectionInTheOrderInWhichTheyAreComplete) {
  constexpr Grouping kTensor = Grouping::kTensor, kWhole = Grouping::kModel;
  EXPECT_EQ(text(make_plan(kModel, in_two(1000, kTensor, kTensor))), "c b | none a dense:b.bias ");
  EXPECT_EQ(text(make_plan(kModel, in_two(5, kTensor, kTensor))),
            "c | none dense:b.bias | b | dense:a.bias | a ");
  EXPECT_EQ(text(make_plan(kModel, in_two(30, kTensor, kTensor, true))),
            "c b[0,22) | b[22,50) | none a dense:b.bias ");
  EXPECT_EQ(text(make_plan(kModel, in_two(5, kTensor, kWhole))),
            "none dense:b.bias | model:b | dense:a.bias | a ");
  EXPECT_EQ(text(make_plan(kModel, in_two(5, kWhole, kTensor))), "c | b | model:a ");
  const Plan plan = make_plan(kModel, in_two(5, kWhole, kWhole));
  EXPECT_EQ(text(plan), "model:b | model:a ");
  EXPECT_EQ(plan.streams[0].tensors, (std::vector<size_t>{2, 5}));
  EXPECT_EQ(plan.streams[0].section, 1u);
  EXPECT_EQ(plan.streams[1].tensors, (std::vector<size_t>{0, 1, 3, 4}));
  EXPECT_EQ(plan.streams[1].section, 0u);
}

// As if a section were all that there is, so that what owners have does not depend on other
// sections.
TEST(Plan, PlacesAreAmongTheTensorsOfTheSection) {
  std::map<std::string, size_t> places;
  for (const auto& stream :
       make_plan(kModel, in_two(1000, Grouping::kTensor, Grouping::kTensor)).streams)
    places[stream.spec.name] = stream.first;
  EXPECT_EQ(places, (std::map<std::string, size_t>{
                        {"a", 0}, {"dense:b.bias", 2}, {"none", 3}, {"b", 0}, {"c", 1}}));
}

TEST(Plan, NumberOfBucketsIsBounded) {
  const std::vector<TensorSpec> large = {{"w", {100000000}, TensorKind::kLinear}};
  const Plan plan = make_plan(large, options(1, true));
  EXPECT_LE(plan.buckets.size(), kMaxBuckets);
  EXPECT_GT(plan.buckets.size(), kMaxBuckets / 3);

  std::vector<TensorSpec> many;
  PlanOptions most = options(1);
  most.sections.assign(kMaxSections, {.grouping = Grouping::kTensor, .divisible = true});
  for (size_t section = 0; section < kMaxSections; ++section)
    for (const char* part : {".a", ".b"}) {
      many.push_back({"w" + std::to_string(section) + part, {100001}, TensorKind::kLinear});
      most.section_of.push_back(section);
    }
  EXPECT_LE(make_plan(many, most).buckets.size(), kMaxBuckets);
}

TEST(Plan, NoTensorsNeedNothing) {
  EXPECT_TRUE(make_plan({}, options(60)).streams.empty());
  EXPECT_TRUE(make_plan({}, options(60)).buckets.empty());
}

}  // namespace
}  // namespace thinwire
