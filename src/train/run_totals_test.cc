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
  json.erase("peak_sent_bytes");
  const RunTotals loaded = RunTotals::from_json(json.dump()).value();
  EXPECT_EQ(loaded.steps, 3u);
  EXPECT_EQ(loaded.sent_bytes, 70u);
  EXPECT_EQ(loaded.inside_bytes, 0u);
  EXPECT_EQ(loaded.between_bytes, 0u);
  EXPECT_EQ(loaded.delivered_norm, 0);
  EXPECT_EQ(loaded.peak_sent_bytes, 0u);
  json.erase("sent_bytes");  // which every version wrote
  EXPECT_EQ(RunTotals::from_json(json.dump()).status().code(), ErrorCode::kCorrupt);
}

TEST(RunTotals, KnowTheStepThatSentMost) {
  RunTotals totals;
  RunSummary summary;
  for (const uint64_t sent : {40, 0, 90, 70}) {
    StepReport report;
    report.sent_bytes = sent;
    totals.add(report, {}, {});
  }
  RunTotals::from_json(totals.to_json()).value().summarise(summary);
  EXPECT_EQ(summary.peak_sent_bytes, 90u);
  EXPECT_EQ(summary.sent_bytes_per_step, 50);
}

// Its values were counted before it was known that the step does not count.
TEST(RunTotals, AStreamThatASkippedStepDidNotEncodeHasNoRatio) {
  StreamSpec stream{.name = "weight", .tensors = {{.name = "weight", .shape = {8, 100}}}};
  StepReport taken;
  taken.streams = {{.values = 800, .kept = 80, .target = 80, .payload_bytes = 400}};
  StepReport skipped = taken;
  skipped.skipped = true;
  skipped.streams[0].kept = skipped.streams[0].payload_bytes = 0;
  RunTotals totals;
  for (const StepReport* report : {&taken, &skipped})
    totals.add(*report, sum_kinds({stream}, *report), {});
  RunSummary summary;
  totals.summarise(summary);
  EXPECT_EQ(summary.codec_ratio, 8);
  EXPECT_EQ(summary.achieved_over_target, 1);
  EXPECT_EQ(totals.kinds.begin()->second.codec_ratio(), 8);

  skipped.streams[0].payload_bytes = 400;  // sent, and another rank's was bad
  totals.add(skipped, sum_kinds({stream}, skipped), {});
  EXPECT_EQ(totals.values, 1600u);
  EXPECT_EQ(totals.payload_bytes, 800u);
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
