// Every rule against its plain loop, and what must hold of all of them.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "exchange/rules/mix.h"
#include "exchange/rules/vector_rule.h"
#include "exchange/testing/rule_oracles.h"

namespace thinwire::testing {
namespace {

// `remembered` is what the rule remembered of the step before; empty before the first.
std::vector<float> combined(const std::string& text, const Rows& rows, const Row& remembered = {}) {
  const auto rule = make_combine(text).value().rule;
  const size_t ranks = rows.size(), count = rows[0].size();
  std::vector<float> given, result(count);
  for (const Row& row : rows) given.insert(given.end(), row.begin(), row.end());
  std::vector<float> weights;
  if (const VectorRule* const of_vectors = rule->over_vectors()) {
    if (remembered.empty())
      given.insert(given.end(), of_vectors->remembered_rows() * count,
                   of_vectors->first_remembered());
    else
      given.insert(given.end(), remembered.begin(), remembered.end());
    std::vector<double> statistics(of_vectors->statistics(ranks));
    of_vectors->add_statistics(given, ranks, statistics);
    weights.assign(of_vectors->weights(ranks), -1.0f);
    of_vectors->weigh(statistics, {.ranks = ranks, .seed = 3, .step = 5}, weights);
  }
  rule->combine(given, ranks, weights, result);
  return result;
}

// Floats, so that the oracle is given what the rule is given.
Rows normals(size_t ranks, size_t count, uint32_t stream, float scale = 1) {
  Rows rows(ranks, Row(count));
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < count; ++i)
      rows[rank][i] = scale * random_normal({.seed = 9, .stream = stream}, rank * count + i);
  return rows;
}

// Small whole numbers: many ties in columns, and exact distances.
Rows whole_numbers(size_t ranks, size_t count, uint32_t stream) {
  Rows rows = normals(ranks, count, stream);
  for (Row& row : rows)
    for (double& x : row) x = std::round(1.5 * x);
  return rows;
}

void expect_near(const std::vector<float>& got, const Row& want, double scale,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5 * scale) << what << ", coordinate " << i;
}

TEST(Rules, AreTheirPlainLoops) {
  for (size_t n = 2; n <= 11; ++n)
    for (const RuleOracle& rule : rule_oracles(n))
      for (const size_t count : {1, 3, 700}) {
        const std::string what = rule.text + ", n = " + std::to_string(n);
        for (uint32_t stream = 0; stream < 2; ++stream) {
          const Rows rows = normals(n, count, stream);
          // A median of few numbers on a line need not be one point.
          const bool geometric = rule.text.ends_with("geometric_median");
          if (geometric && count < 3) continue;
          expect_near(combined(rule.text, rows), rule.of(rows), 1, what);
          const Rows small = normals(n, count, stream, 1e-3f);
          if (!geometric && rule.text.find("clip") == std::string::npos)  // these have a scale
            expect_near(combined(rule.text, small), rule.of(small), 1e-3, what);
        }
      }
}

TEST(Rules, BreakTiesAsTheirPlainLoops) {
  for (size_t n = 2; n <= 11; ++n)
    for (const RuleOracle& rule : rule_oracles(n)) {
      // No rounding leaves means tied; and a median of few numbers on a line need not be one point,
      // nor need numbers spread most in one direction.
      if (rule.text.ends_with("geometric_median") || rule.text.starts_with("caf") ||
          rule.text.find(" then ") != std::string::npos)
        continue;
      for (const size_t count : {1, 2, 5})
        for (uint32_t stream = 0; stream < 6; ++stream) {
          const Rows rows = whole_numbers(n, count, stream);
          expect_near(combined(rule.text, rows), rule.of(rows), 1,
                      rule.text + ", n = " + std::to_string(n));
        }
    }
}

TEST(Rules, GiveWhatAllRanksGiveAlike) {
  for (const size_t n : {3, 7, 8}) {
    const Rows rows(n, normals(1, 50, 1)[0]);
    for (const RuleOracle& rule : rule_oracles(n))
      if (rule.text.find("clip") == std::string::npos)
        expect_near(combined(rule.text, rows), rows[0], 1, rule.text);
  }
}

// Up to f rows that are as large as floats are: the result stays among the others. Whoever adds
// statistics in float, or multiplies what is left out by zero, fails here.
TEST(Rules, KeepTheirPlaceWhateverFRanksSend) {
  for (const size_t n : {3, 5, 7, 9, 11}) {
    for (const RuleOracle& rule : rule_oracles(n)) {
      if (rule.text.find(" then ") != std::string::npos) continue;  // f is that of two
      const size_t at = rule.text.find("f=");
      const size_t f = at == std::string::npos ? (n - 1) / 2 : std::stoul(rule.text.substr(at + 2));
      for (const double huge : {1e4, 1e30, -3e38}) {
        Rows rows = normals(n, 40, 2);
        for (size_t bad = 0; bad < f; ++bad)
          for (size_t i = 0; i < 40; ++i)
            rows[2 * bad % n][i] = huge * (1 - 0.01 * static_cast<double>(i));
        const auto result = combined(rule.text, rows);
        for (const float x : result) EXPECT_LE(std::abs(x), 6) << rule.text << " " << huge;
      }
    }
  }
}

TEST(Rules, DoNotCareWhichRankSendsWhat) {
  for (const size_t n : {5, 7, 11}) {
    Rows rows = normals(n, 30, 3), turned = rows;
    std::rotate(turned.begin(), turned.begin() + 2, turned.end());
    for (const RuleOracle& rule : rule_oracles(n)) {
      if (rule.text.find("mda") != std::string::npos)
        continue;  // several sets have the diameter of one pair
      const auto result = combined(rule.text, rows);
      expect_near(combined(rule.text, turned), Row(result.begin(), result.end()), 1, rule.text);
    }
  }
}

TEST(Rules, MoveWithTheContributions) {
  const Rows rows = normals(11, 30, 4);
  Rows moved = rows;
  for (Row& row : moved)
    for (double& x : row) x += 2;
  for (const RuleOracle& rule : rule_oracles(11)) {
    if (rule.text.find("clip") != std::string::npos) continue;
    const auto here = combined(rule.text, rows), there = combined(rule.text, moved);
    for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i] + 2, 1e-5) << rule.text;
  }
}

TEST(Rules, SayHowManyRanksTheyNeed) {
  const auto lack = [](const char* text, size_t ranks) {
    return lack_of_ranks(make_combine(text).value(), ranks);
  };
  EXPECT_EQ(lack("trimmed_mean:f=2", 5), "");
  EXPECT_EQ(lack("trimmed_mean:f=2", 4),
            "combine = trimmed_mean:f=2 needs 2 f + 1 = 5 ranks at least");
  EXPECT_EQ(lack("mean_around_median:f=2", 4),
            "combine = mean_around_median:f=2 needs 2 f + 1 = 5 ranks at least");
  EXPECT_EQ(lack("mda:f=2", 4), "combine = mda:f=2 needs 2 f + 1 = 5 ranks at least");
  EXPECT_EQ(lack("bulyan:f=1", 7), "");
  EXPECT_EQ(lack("bulyan:f=1", 6), "combine = bulyan:f=1 needs 4 f + 3 = 7 ranks at least");
  EXPECT_EQ(lack("multi_krum:f=1", 4),
            "combine = multi_krum:f=1,m=0 needs 2 f + 3 = 5 ranks at least");
  EXPECT_EQ(lack("median", 1), "");
  EXPECT_EQ(lack("geometric_median", 1), "");
  EXPECT_EQ(lack("caf:f=2", 4), "combine = caf:f=2 needs 2 f + 1 = 5 ranks at least");
  EXPECT_EQ(lack("smea:f=2", 4), "combine = smea:f=2 needs 2 f + 1 = 5 ranks at least");
}

TEST(Rules, SayHowManyRanksAreTooMany) {
  const auto most = [](const std::string& text) {
    const NamedCombine combine = make_combine(text).value();
    size_t ranks = combine.rule->least_ranks().count;
    while (ranks < 1000 && lack_of_ranks(combine, ranks + 1).empty()) ++ranks;
    return ranks;
  };
  EXPECT_EQ(most("smea:f=0"), 1000u);
  EXPECT_EQ(most("smea:f=1"), 118u);
  EXPECT_EQ(most("smea:f=2"), 52u);
  EXPECT_EQ(most("smea:f=8"), 17u);
  EXPECT_EQ(most("nnm then smea:f=2"), 52u);
  EXPECT_EQ(most("bucketing:s=2 then smea:f=2"), 104u);
  EXPECT_EQ(most("mda:f=2"), 1000u);
  EXPECT_EQ(lack_of_ranks(make_combine("smea:f=8").value(), 18),
            "combine = smea:f=8 tries sets of ranks one after another, of 17 ranks at most");
}

TEST(Rules, GoOnFromWhatTheyKept) {
  for (const size_t n : {2, 5, 8}) {
    const Rows rows = normals(n, 40, 6);
    const Row before = normals(1, 40, 7)[0];
    for (const double tau : {0.1, 3.0, 7.0, 1e4})
      for (const int iterations : {1, 4}) {
        const std::string text = "centred_clipping:tau=" + std::to_string(tau) +
                                 ",iterations=" + std::to_string(iterations);
        expect_near(combined(text, rows, before),
                    centred_clipping_oracle(rows, tau, iterations, before), 1, text);
        expect_near(
            combined("nnm:f=0 then clip:norm=5 then " + text, rows, before),
            centred_clipping_oracle(clip_oracle(nnm_oracle(rows, 0), 5), tau, iterations, before),
            1, text);
      }
  }
  expect_near(combined("centred_clipping", {{3, 1}, {3, 1}}, {3, 1}), {3, 1}, 1, "still");
}

// The median goes from (0, 0) to (2, 1).
TEST(Rules, LicmKeepsWhoIsAsNearAsTheMedian) {
  const Rows rows = {{2, 1}, {4, 2}, {2, 1}, {-4.125, 1}, {2, 30}};
  const Row before = {0, 0};
  for (const double gamma : {1.0, 2.0, 2.1, 100.0})
    expect_near(combined("licm:gamma=" + std::to_string(gamma), rows, before),
                licm_oracle(rows, gamma, before), 1, std::to_string(gamma));
  expect_near(combined("licm:gamma=1", rows, before), {2, 1}, 1, "two stay");
  expect_near(combined("licm:gamma=2", rows, before), {8.0 / 3, 4.0 / 3}, 1, "three stay");
  expect_near(combined("licm:gamma=3", rows, before), {3.875 / 4, 5.0 / 4}, 1, "four stay");
  expect_near(combined("licm:gamma=3", {{9}, {5}, {-6}, {-5}}, {0}), {0}, 1,
              "none stays: the median");
  const auto rule = make_combine("licm:gamma=2").value().rule;
  const VectorRule& licm = *rule->over_vectors();
  std::vector<float> weights(6), next(2);
  licm.weigh(std::vector<double>{0, 0, 0, 1, 1}, {.ranks = 5}, weights);
  EXPECT_TRUE(licm.leaves_out(3, 5, weights));
  EXPECT_FALSE(licm.leaves_out(2, 5, weights));
  licm.weigh(std::vector<double>{1, 1, 1, 1, 1}, {.ranks = 5}, weights);
  EXPECT_FALSE(licm.leaves_out(3, 5, weights));  // it counts in the median
  std::vector<float> given;
  for (const Row& row : rows) given.insert(given.end(), row.begin(), row.end());
  given.insert(given.end(), 2, 0.0f);
  licm.next_remembered(given, 5, next);
  EXPECT_EQ(next, (std::vector<float>{2, 1}));
}

// Not finite, and negative where a distance or a norm cannot be: weights are finite, and add up to
// 1.
TEST(Rules, TakeAnyStatistics) {
  std::vector<std::string> texts;
  for (const CombineEntry* entry : list_combines()) {
    texts.emplace_back(entry->name);
    for (const MixEntry* mix : list_mixes())
      texts.push_back(std::string(mix->name) + " then " + std::string(entry->name));
  }
  for (const std::string& text : texts) {
    if (text.ends_with(" then licm")) continue;  // refused
    const auto rule = make_combine(text).value().rule;
    if (lack_of_ranks({rule, text}, 7) != "") continue;
    const VectorRule* const of_vectors = rule->over_vectors();
    if (of_vectors == nullptr) continue;
    for (const double odd : std::vector<double>{NAN, INFINITY, -INFINITY, -1, 0, 1e300})
      for (size_t at = 0; at <= of_vectors->statistics(7); ++at) {
        std::vector<double> statistics(of_vectors->statistics(7), odd);
        if (at < statistics.size()) {
          std::fill(statistics.begin(), statistics.end(), 1.0);
          statistics[at] = odd;
        }
        std::vector<float> weights(of_vectors->weights(7), NAN);
        of_vectors->weigh(statistics, {.ranks = 7}, weights);
        double sum = 0;
        for (const float weight : weights) sum += weight;
        EXPECT_TRUE(std::isfinite(sum)) << text << " " << odd << " at " << at;
        if (weights.size() == 7) {
          EXPECT_NEAR(sum, 1, 1e-6) << text << " " << odd << " at " << at;
        }
      }
  }
}

}  // namespace
}  // namespace thinwire::testing
