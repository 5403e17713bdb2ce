// Tests of cuts against an enumeration of all cuts.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/random.h"

namespace thinwire {
namespace {

using Starts = std::vector<size_t>;

double largest(const std::vector<double>& costs, const Starts& starts) {
  double most = 0;
  for (size_t s = 0; s < starts.size(); ++s) {
    const size_t end = s + 1 < starts.size() ? starts[s + 1] : costs.size();
    most = std::max(most, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(starts[s]),
                                          costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0));
  }
  return most;
}

// The first of the best in lexicographic order, which is the order they are tried in.
void try_all(const std::vector<double>& costs, size_t stages, Starts& starts, Starts& best) {
  if (starts.size() == stages) {
    if (best.empty() || largest(costs, starts) < largest(costs, best)) best = starts;
    return;
  }
  for (size_t next = starts.back() + 1; next < costs.size(); ++next) {
    starts.push_back(next);
    try_all(costs, stages, starts, best);
    starts.pop_back();
  }
}

TEST(BalancedCut, IsTheBestOfAll) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    std::vector<double> costs(1 + random_below({.seed = 1, .step = trial}, 0, 9));
    for (size_t i = 0; i < costs.size(); ++i)  // small integers: many ties, and zeros
      costs[i] = static_cast<double>(random_below({.seed = 2, .step = trial}, i, 5));
    for (size_t stages = 1; stages <= costs.size(); ++stages) {
      Starts starts = {0}, best;
      try_all(costs, stages, starts, best);
      EXPECT_EQ(balanced_cut(costs, stages).value(), best) << trial << ", " << stages;
    }
  }
}

TEST(BalancedCut, RefusesWhatCannotBe) {
  const std::vector<double> costs = {1, 2};
  EXPECT_EQ(balanced_cut(costs, 3).status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(balanced_cut(costs, 0).status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(balanced_cut({}, 1).status().code(), ErrorCode::kBadOption);
  for (const double cost :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(balanced_cut(std::vector<double>{1, cost}, 1).status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(balanced_cut(std::vector<double>{1e308, 1e308}, 1).status().code(),
            ErrorCode::kBadOption);
}

TEST(NamedCut, StartsBehindTheNames) {
  const std::vector<std::string> layers = {"stem", "group1", "group2", "group3", "head"};
  const auto cut = [&](const std::vector<std::string>& names) { return named_cut(layers, names); };
  EXPECT_EQ(cut({"group1", "group2", "group3"}).value(), (Starts{0, 2, 3, 4}));
  EXPECT_EQ(cut({}).value(), (Starts{0}));
  EXPECT_EQ(cut({"group9"}).status().code(), ErrorCode::kUnknownName);
  EXPECT_NE(cut({"group9"}).status().message().find("group3, head"), std::string::npos);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"head"}, {"group2", "group1"}, {"stem", "stem"}})
    EXPECT_EQ(cut(bad).status().code(), ErrorCode::kBadOption);
  EXPECT_EQ(named_cut({}, {}).status().code(), ErrorCode::kBadOption);
}

}  // namespace
}  // namespace thinwire
