// Tests of clusters against plain loops: what is pruned and kept, nearest centres, means of
// members.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"

namespace thinwire {
namespace {

std::vector<float> normal(size_t size, uint64_t seed = 4) {
  const RandomKey key{.seed = seed, .use = RandomUse::kTest};
  std::vector<float> values;
  for (uint64_t i = 0; i < size; ++i) values.push_back(random_normal(key, i));
  return values;
}

std::vector<float> expanded(const Clusters& clusters) {
  std::vector<float> values(clusters.numbers.size());
  read_clusters(clusters, values).or_throw();
  return values;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return sum;
}

TEST(Clusters, SmallestArePrunedLargestAreKeptTheRestGoesToTheNearestCentre) {
  const auto values = normal(2000);
  const Clusters clusters = make_clusters(values, {.bits = 3, .prune = 0.3, .keep = 0.01});
  ASSERT_EQ(clusters.centres.size(), 8u);
  EXPECT_EQ(clusters.kept.size(), 19u);  // strictly above the value of rank 0.99 n

  auto order = values;
  std::sort(order.begin(), order.end(),
            [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float least = std::fabs(order[600]), most = std::fabs(order[1980]);
  const auto out = expanded(clusters);
  for (size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::fabs(values[i]);
    if (magnitude < least) {
      EXPECT_EQ(out[i], 0) << values[i];
    } else if (magnitude > most) {
      EXPECT_EQ(out[i], values[i]);
    } else {
      float nearest = INFINITY;
      for (size_t c = values[i] < 0 ? 0 : 4; c < (values[i] < 0 ? 4u : 8u); ++c)
        nearest = std::min(nearest, std::fabs(clusters.centres[c] - values[i]));
      EXPECT_NEAR(std::fabs(out[i] - values[i]), nearest, 1e-6f);
      EXPECT_EQ(out[i] < 0, values[i] < 0);
    }
  }
}

TEST(Clusters, ACentreIsTheMeanOfItsMembersAndNumbersRiseWithValues) {
  const auto values = normal(3000);
  const Clusters clusters = make_clusters(values, {.bits = 2});
  std::vector<double> sums(clusters.count()), sizes(clusters.count());
  for (size_t i = 0; i < values.size(); ++i) {
    sums[clusters.numbers[i]] += values[i];
    sizes[clusters.numbers[i]] += 1;
  }
  EXPECT_EQ(sizes[0] + sizes[3] + sizes[6], 0);  // nothing is kept or pruned
  const size_t numbers[] = {1, 2, 4, 5};
  for (size_t c = 0; c < 4; ++c)  // twenty rounds bring them near
    EXPECT_NEAR(clusters.centres[c], sums[numbers[c]] / sizes[numbers[c]], 0.02) << c;
  EXPECT_TRUE(std::is_sorted(clusters.centres.begin(), clusters.centres.end()));
}

TEST(Clusters, MoreBitsLeaveLessErrorAndLessThanAUniformGrid) {
  const auto values = normal(4000);
  double last = INFINITY;
  for (const int bits : {1, 2, 3, 4, 6, 8}) {
    const double error = squared_error(values, expanded(make_clusters(values, {.bits = bits})));
    EXPECT_LT(error, last / 2) << bits;
    last = error;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const float width = (*high - *low) / static_cast<float>(1 << bits);
    std::vector<float> grid;
    for (const float value : values)
      grid.push_back(*low + width * (std::floor((value - *low) / width) + 0.5f));
    EXPECT_LT(error, squared_error(values, grid)) << bits;
  }
}

TEST(Clusters, CentresThatGoOnLetMostValuesStay) {
  const auto values = normal(4000);
  const auto noise = normal(4000, 9);
  auto later = values;
  for (size_t i = 0; i < later.size(); ++i) later[i] += 0.002f * noise[i];
  const Treatment treatment{.bits = 3, .prune = 0.3};
  const Clusters first = make_clusters(values, treatment);
  const Clusters second = make_clusters(later, treatment, first.centres);
  size_t moved = 0;
  for (size_t i = 0; i < values.size(); ++i) moved += first.numbers[i] != second.numbers[i];
  EXPECT_LT(moved, values.size() / 50);
  EXPECT_EQ(make_clusters(values, treatment, std::span(first.centres).first(4)),
            first);  // another number
}

TEST(Clusters, DegenerateValues) {
  for (const std::vector<float>& values : {std::vector<float>{},
                                           {0},
                                           {1},
                                           {-1},
                                           {0, 0, 0},
                                           {2, 2, 2},
                                           {1e-45f, -1e-45f, 0},
                                           {3e38f, -3e38f, 1}}) {
    const Clusters clusters = make_clusters(values, {.bits = 4, .prune = 0.2, .keep = 0.001});
    EXPECT_EQ(clusters.numbers.size(), values.size());
    for (const float centre : clusters.centres) EXPECT_TRUE(std::isfinite(centre));
    const auto out = expanded(clusters);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(out[i] == values[i] || out[i] == 0) << values[i] << " became " << out[i];
  }
}

TEST(Clusters, NumbersThatAreNoneAreRefused) {
  std::vector<float> out(2);
  Clusters clusters{.centres = {-1, 1}, .numbers = {1, 3}, .kept = {}};
  ASSERT_TRUE(read_clusters(clusters, out));
  EXPECT_EQ(out, (std::vector<float>{-1, 1}));
  clusters.numbers[1] = 5;
  EXPECT_FALSE(read_clusters(clusters, out));
  clusters.numbers[1] = 4;  // kept, but there is none
  EXPECT_FALSE(read_clusters(clusters, out));
  clusters.kept = {7};
  ASSERT_TRUE(read_clusters(clusters, out));
  EXPECT_EQ(out[1], 7);
  clusters.kept = {7, 8};
  EXPECT_FALSE(read_clusters(clusters, out));
}

}  // namespace
}  // namespace thinwire
