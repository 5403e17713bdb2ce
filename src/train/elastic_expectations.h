// For tests: elastic toy runs of twenty steps, what they wrote, and what those that are left must
// agree on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/elastic_toys.h"

namespace thinwire {

inline constexpr int kEver = 1 << 30;

// Twenty steps of batches of 20, of 90 samples; the last one of an epoch has 10.
inline ElasticToy usual(const Settings& more = {}) {
  ElasticToy run;
  run.toy.settings = {{"train.epochs", "4"}, {"train.evaluate_every", "1"}};
  for (const auto& row : more) run.toy.settings.push_back(row);
  return run;
}

inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& out) {
  std::ifstream file(out / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline nlohmann::json summary_of(const std::filesystem::path& out) {
  std::ifstream file(out / "summary.json");
  return nlohmann::json::parse(file);
}

// A line for each step, once, in order.
inline void expect_every_step_once(const std::vector<nlohmann::json>& lines, uint64_t steps) {
  std::vector<uint64_t> found, expected;
  for (const auto& line : lines)
    if (line.contains("loss")) found.push_back(line["step"].get<uint64_t>());
  for (uint64_t step = 1; step <= steps; ++step) expected.push_back(step);
  EXPECT_EQ(found, expected);
}

// Everybody but `lost` comes to the end, with the same weights; returns those.
inline std::vector<torch::Tensor> expect_survivors(const std::vector<WorkerEnd>& ends,
                                                   const std::vector<int>& lost,
                                                   const std::string& what) {
  std::vector<torch::Tensor> weights;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (std::find(lost.begin(), lost.end(), static_cast<int>(i)) != lost.end()) {
      EXPECT_FALSE(ends[i].ended_well) << what;
      EXPECT_TRUE(ends[i].survived) << what << ": " << ends[i].error;
      continue;
    }
    EXPECT_TRUE(ends[i].ended_well) << what << ", worker " << i << ": " << ends[i].error;
    if (!ends[i].ended_well) continue;
    EXPECT_TRUE(ends[i].result.summary.finished);
    EXPECT_EQ(ends[i].result.summary.steps, 20u) << what;
    if (weights.empty()) weights = ends[i].result.weights;
    EXPECT_TRUE(same_bits(ends[i].result.weights, weights)) << what << ", worker " << i;
  }
  return weights;
}

}  // namespace thinwire
