// Tests that totals survive a checkpoint, also one of an earlier version.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_totals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace thinwire {
namespace {

TEST(RunTotals, OfEarlierVersionsLackWhatCameLater) {
  RunTotals saved;
  saved.steps = 3;
  saved.sent_bytes = 70;
  saved.inside_bytes = 50;
  saved.between_bytes = 20;
  saved.delivered_norm = 1.5;
  auto json = nlohmann::json::parse(saved.to_json());
  EXPECT_EQ(RunTotals::from_json(json.dump()).value().inside_bytes, 50u);
  EXPECT_EQ(RunTotals::from_json(json.dump()).value().delivered_norm, 1.5);
  json.erase("inside_bytes");
  json.erase("between_bytes");
  json.erase("delivered_norm");
  const RunTotals loaded = RunTotals::from_json(json.dump()).value();
  EXPECT_EQ(loaded.steps, 3u);
  EXPECT_EQ(loaded.sent_bytes, 70u);
  EXPECT_EQ(loaded.inside_bytes, 0u);
  EXPECT_EQ(loaded.between_bytes, 0u);
  EXPECT_EQ(loaded.delivered_norm, 0);
  json.erase("sent_bytes");  // which every version wrote
  EXPECT_EQ(RunTotals::from_json(json.dump()).status().code(), ErrorCode::kCorrupt);
}

TEST(RunTotals, OfARunThatDivergedHaveALossThatIsNoNumber) {
  RunTotals saved;
  saved.steps = 3;
  saved.last_loss = INFINITY;
  const RunTotals loaded = RunTotals::from_json(saved.to_json()).value();
  EXPECT_TRUE(std::isnan(loaded.last_loss));
  EXPECT_EQ(loaded.steps, 3u);
}

}  // namespace
}  // namespace thinwire
