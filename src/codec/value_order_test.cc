// Tests of labels that put values of one sign and size beside each other.
// SPDX-License-Identifier: Apache-2.0
#include "codec/value_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/random.h"

namespace thinwire {
namespace {

using Labels = std::vector<uint8_t>;
using Order = std::vector<uint32_t>;

Labels labels_of(const std::vector<float>& values, size_t bits) {
  Labels labels(values.size());
  label_values(values, bits, labels);
  return labels;
}

TEST(ValueOrder, LabelsAreSignAndClassOfMagnitude) {
  const std::vector<float> values = {1, -5, 4, 3, -6, 2};
  EXPECT_EQ(labels_of(values, 1), (Labels{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(labels_of(values, 2), (Labels{1, 3, 0, 0, 2, 1}));
  // Four classes for four positive values, and for two negative ones.
  EXPECT_EQ(labels_of(values, 3), (Labels{3, 6, 0, 1, 4, 2}));
}

TEST(ValueOrder, EqualMagnitudesAreOrderedAsTheyStand) {
  EXPECT_EQ(labels_of({2, 2, 2, 2}, 2), (Labels{0, 0, 1, 1}));
  EXPECT_EQ(labels_of({-2, -2, -2}, 2), (Labels{2, 2, 3}));
  EXPECT_EQ(labels_of({2, -2, 2, -2, 2}, 2), (Labels{0, 2, 0, 3, 1}));
}

TEST(ValueOrder, PositiveValuesComeFirstAndEqualLabelsAsTheyStand) {
  const Labels labels = {3, 0, 1, 0, 2, 1};
  Order order(labels.size());
  EXPECT_EQ(order_by_labels(labels, 2, order), 4u);
  EXPECT_EQ(order, (Order{1, 3, 2, 5, 4, 0}));
  EXPECT_EQ(order_by_labels(labels, 3, order), 6u) << "the highest bit of three is 0";
  EXPECT_EQ(order_by_labels({}, 8, {}), 0u);
}

TEST(ValueOrder, AllLabelsOfEightBitsAreInRange) {
  Labels labels(256);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(255 - i);
  Order order(labels.size());
  EXPECT_EQ(order_by_labels(labels, 8, order), 128u);
  for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], 255 - i);
}

// With b bits the i-th value of a sign is in the i-th of 2^(b-1) classes as large as each other.
TEST(ValueOrder, LaterClassesOfASignHaveSmallerValues) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 3}, i);
  for (size_t bits = 1; bits <= 8; ++bits) {
    const Labels labels = labels_of(values, bits);
    std::array<float, 256> least{}, most{};
    std::array<size_t, 256> count{};
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t label = labels[i];
      const float size = std::abs(values[i]);
      ASSERT_EQ(label >> (bits - 1) == 1, values[i] < 0);
      least[label] = count[label] == 0 ? size : std::min(least[label], size);
      most[label] = std::max(most[label], size);
      ++count[label];
    }
    const size_t classes = size_t{1} << (bits - 1);
    for (size_t label = 0; label < 2 * classes; ++label) {
      EXPECT_NEAR(static_cast<double>(count[label]), 500.0 / static_cast<double>(classes),
                  30.0 / static_cast<double>(classes) + 1);
      if (label % classes != 0) {
        EXPECT_LE(most[label], least[label - 1]);
      }
    }
  }
}

}  // namespace
}  // namespace thinwire
