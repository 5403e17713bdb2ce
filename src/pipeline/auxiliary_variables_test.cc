// Tests of auxiliary variables against a plain loop, and of their steps as transactions.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/auxiliary_variables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "core/random.h"

namespace thinwire {
namespace {

using Ids = std::vector<uint64_t>;
using Values = std::vector<float>;
constexpr size_t kCount = 37;

AuxiliaryForm form_of(double penalty, double rate, size_t budget = 0) {
  return {.name = "cut",
          .count = kCount,
          .penalty = penalty,
          .rate = rate,
          .budget = budget,
          .folder = std::filesystem::temp_directory_path().string()};
}

Values random_values(size_t samples, uint64_t step, uint32_t stream) {
  Values values(samples * kCount);
  const RandomKey key{.seed = 2, .use = RandomUse::kTest, .step = step, .stream = stream};
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, i);
  return values;
}

Values read(const AuxiliaryVariables& variables, const Ids& ids) {
  Values values(ids.size() * kCount);
  variables.read(ids, values);
  return values;
}

// Visits of three parts of a step, in another order each time; the arithmetic of the class comment.
TEST(AuxiliaryVariables, FollowTheRuleBitForBit) {
  constexpr float kBeta = 0.25f, kRate = 0.75f, kScale = 0.125f;
  AuxiliaryVariables variables(form_of(kBeta, kRate)),
      spilled(form_of(kBeta, kRate, 4 * kCount * 3));
  std::map<uint64_t, Values> want;
  for (uint64_t step = 0; step < 6; ++step) {
    for (const uint64_t part : {0, 1, 2}) {
      const Ids ids = {(step + part) % 3 * 10 + 1, (step + part) % 3 * 10};
      const Values x = random_values(2, step, static_cast<uint32_t>(part));
      const Values g = random_values(2, step, static_cast<uint32_t>(10 + part));
      for (AuxiliaryVariables* one : {&variables, &spilled}) {
        EXPECT_EQ(one->hold(ids), step > 0);
        if (step == 0)
          one->set(ids, x);
        else
          EXPECT_TRUE(one->change(ids, x, g, kScale));
      }
      for (size_t i = 0; i < 2; ++i) {
        Values& lambda = want[ids[i]];
        lambda.resize(kCount);
        for (size_t j = 0; j < kCount; ++j) {
          const float target = x[i * kCount + j] - g[i * kCount + j] / (kScale * kBeta);
          lambda[j] = step == 0 ? x[i * kCount + j] : (1 - kRate) * lambda[j] + kRate * target;
        }
      }
    }
    variables.commit();
    spilled.commit();
    for (const auto& [id, lambda] : want) {
      EXPECT_EQ(read(variables, {id}), lambda) << id;
      EXPECT_EQ(read(spilled, {id}), lambda) << id;
    }
  }
}

TEST(AuxiliaryVariables, ChangeWithTheCommitOfAStepOnly) {
  AuxiliaryVariables variables(form_of(1, 1));
  const Values first = random_values(1, 0, 0), second = random_values(1, 1, 0);
  variables.set(Ids{5}, first);
  EXPECT_FALSE(variables.hold(Ids{5}));
  variables.rollback();
  variables.commit();
  EXPECT_FALSE(variables.hold(Ids{5}));
  variables.set(Ids{5}, first);
  variables.commit();
  EXPECT_TRUE(variables.hold(Ids{5}));
  EXPECT_FALSE(variables.hold(Ids{5, 6}));
  EXPECT_TRUE(variables.change(Ids{5}, second, first, 1));
  EXPECT_EQ(read(variables, {5}), first);
  variables.rollback();
  variables.commit();
  EXPECT_EQ(read(variables, {5}), first);
}

TEST(AuxiliaryVariables, AreSavedAsOfTheLastCommit) {
  AuxiliaryVariables variables(form_of(1, 1)), other(form_of(1, 1)), wider({.count = kCount + 1});
  variables.set(Ids{9, 3}, random_values(2, 0, 0));
  variables.commit();
  const StateArrays saved = variables.save();
  variables.set(Ids{4}, random_values(1, 1, 0));
  other.set(Ids{7}, random_values(1, 2, 0));
  ASSERT_TRUE(other.load(saved));
  other.commit();
  EXPECT_FALSE(other.hold(Ids{7}));
  EXPECT_FALSE(other.hold(Ids{4}));
  EXPECT_EQ(read(other, {3, 9}), read(variables, {3, 9}));
  EXPECT_EQ(wider.load(saved).code(), ErrorCode::kMismatch);
}

TEST(AuxiliaryVariables, SayWhatIsNotFinite) {
  AuxiliaryVariables variables(form_of(1e-9, 1));
  const Values x = random_values(1, 0, 0);
  variables.set(Ids{1}, x);
  variables.commit();
  EXPECT_TRUE(variables.change(Ids{1}, x, Values(kCount, 1e20f), 1));
  variables.rollback();
  EXPECT_FALSE(variables.change(Ids{1}, x, Values(kCount, 1e35f), 1));  // divided by beta
  variables.rollback();
  EXPECT_EQ(read(variables, {1}), x);
}

TEST(AuxiliaryVariables, RefuseWhatIsNotOfWholeSamples) {
  AuxiliaryVariables variables(form_of(1, 1));
  const Values x = random_values(2, 0, 0);
  Values out(kCount);
  EXPECT_THROW(variables.set(Ids{1}, x), Error);
  EXPECT_THROW(variables.read(Ids{1}, out), Error);
  variables.set(Ids{1, 2}, x);
  variables.commit();
  EXPECT_THROW(variables.read(Ids{1, 2}, out), Error);
  EXPECT_THROW((void)variables.change(Ids{1, 2}, x, out, 1), Error);
}

}  // namespace
}  // namespace thinwire
