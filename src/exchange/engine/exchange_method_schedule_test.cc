// Rules that combine contributions, while the schedule of codecs changes the method.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>

#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

constexpr int kRanks = 5;
constexpr int kFaulty = 1;  // the rank that gives a NaN

// topk is exchanged by gather, int8 by scatter-reduce, in which a NaN skips the step.
TEST(ExchangeMethodSchedule, AFaultIsThatOfTheMethodOfTheStep) {
  for (const std::string rule : {"median", "trimmed_mean:f=1", "krum:f=1", "geometric_median"}) {
    const ExchangeOptions options{.codec = "topk:density=0.5 | 2steps: int8", .combine = rule};
    run_local(kRanks, [&](Group& group) {
      group.set_deadline(std::chrono::seconds(20));
      Side side(group, small_model(), options);
      for (uint64_t step = 0; step < 6; ++step) {
        const bool spoilt = step % 2 == 1;  // steps 1, 3 and 5
        side.values = gradients(small_model(), group.rank(), step);
        if (spoilt && group.rank() == kFaulty)
          side.values[3][0] = std::numeric_limits<float>::quiet_NaN();
        for (size_t i = side.values.size(); i-- > 0;) side.start(i);
        const StepReport report = side.exchange().finish();
        EXPECT_EQ(report.skipped, spoilt) << rule << ", step " << step;
        EXPECT_EQ(report.fault.rank, spoilt ? kFaulty : -1) << rule << ", step " << step;
        EXPECT_TRUE(same_on_all_ranks(group, side.values)) << rule << ", step " << step;
      }
    });
  }
}

}  // namespace
}  // namespace thinwire::testing
