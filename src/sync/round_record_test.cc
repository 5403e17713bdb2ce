// Tests of the line of JSON for a round's report.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "thinwire/synchroniser.h"

namespace thinwire {
namespace {

TEST(RoundRecord, SaysWhoLedAndWhatItTook) {
  RoundReport report;
  report.round = 3;
  report.step = 256;
  report.ranks = {0, 1, 3};
  report.losses = {0.5, std::numeric_limits<double>::infinity(), 0.25};
  report.leaders = {0, 3};
  report.leader = 3;
  report.values = 10;
  report.payload_bytes = 40;
  report.sent_bytes = 100;
  report.received_bytes = 90;
  report.between_bytes = 88;
  report.seconds = 0.125;
  EXPECT_EQ(to_json(report),
            R"({"round":3,"step":256,"global":true,"ranks":[0,1,3],"losses":[0.5,null,0.25],)"
            R"("leaders":[0,3],"leader":3,"values":10,"payload_bytes":40,"sent_bytes":100,)"
            R"("received_bytes":90,"between_bytes":88,"seconds":0.125})");
}

TEST(RoundRecord, SaysOfWhichPartItWas) {
  RoundReport report;
  report.step = 12;
  report.fragment = 2;
  report.begun = 9;
  EXPECT_EQ(
      to_json(report),
      R"({"round":0,"step":12,"global":true,"fragment":2,"begun":9,"values":0,"payload_bytes":0,)"
      R"("sent_bytes":0,"received_bytes":0,"between_bytes":0,"seconds":0})");
}

TEST(RoundRecord, NamesTheCulpritOfARoundThatWasSkipped) {
  RoundReport report;
  report.skipped = true;
  report.global = false;
  report.fault = {.code = ErrorCode::kCorrupt, .rank = 2, .stream = "a\"b\\c\n"};
  EXPECT_EQ(to_json(report),
            R"({"round":0,"step":0,"global":false,"values":0,"payload_bytes":0,"sent_bytes":0,)"
            R"("received_bytes":0,"between_bytes":0,"seconds":0,"skipped":"corrupt","culprit":2,)"
            R"("where":"a\"b\\c\u000a"})");
}

}  // namespace
}  // namespace thinwire
