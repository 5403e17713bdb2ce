// Tests of what every "auto" is decided to be.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/terms/terms.h"

#include <gmock/gmock.h>

#include "thinwire/settled.h"

namespace thinwire {
namespace {

using ::testing::HasSubstr;

TEST(SettledOptions, DecidesEveryAuto) {
  const SettledOptions whole = settled_options({.codec = "sidco:density=0.1"}).value();
  EXPECT_THAT(whole.codec, HasSubstr("density=0.1"));
  EXPECT_THAT(whole.codec, HasSubstr("window="));  // spelt out
  EXPECT_EQ(whole.feedback, "residual");
  EXPECT_EQ(whole.method, "gather");
  EXPECT_EQ(whole.grouping, Grouping::kModel);

  const SettledOptions plain = settled_options({.codec = "fp16"}).value();
  EXPECT_EQ(plain.feedback, "none");
  EXPECT_EQ(plain.method, "scatter-reduce");
  EXPECT_EQ(plain.grouping, Grouping::kTensor);

  EXPECT_EQ(settled_options({.codec = "signum"}).value().feedback, "momentum");
  EXPECT_EQ(settled_options({.codec = "scalecom"}).value().method, "shared-index");
}

TEST(SettledOptions, KeepsWhatIsChosen) {
  const SettledOptions chosen = settled_options({.codec = "topk",
                                                 .feedback = "dgc:momentum=0.5",
                                                 .method = "sparse-reduce",
                                                 .grouping = Grouping::kModel})
                                    .value();
  EXPECT_EQ(chosen.feedback, "dgc:momentum=0.5");
  EXPECT_EQ(chosen.method, "sparse-reduce");
  EXPECT_EQ(chosen.grouping, Grouping::kModel);
}

// The codec is that of the step, the memory serves the whole schedule.
TEST(SettledOptions, OfAScheduleAreThoseOfItsStep) {
  ExchangeOptions options{.codec = "fp32 | 3steps: topk"};
  EXPECT_EQ(settled_options(options).value().method, "scatter-reduce");
  EXPECT_EQ(settled_options(options).value().feedback, "residual");
  options.first_step = 3;
  EXPECT_EQ(settled_options(options).value().method, "gather");
}

TEST(SettledOptions, FailsAsTheExchangeWould) {
  for (const ExchangeOptions& options :
       {ExchangeOptions{.codec = "topkk"}, ExchangeOptions{.codec = "topk", .method = "dense"},
        ExchangeOptions{.codec = "topk", .feedback = "nothing"}}) {
    const auto settled = settled_options(options);
    ASSERT_FALSE(settled);
    EXPECT_EQ(settled.status().message(), check_exchange(options).message());
  }
}

}  // namespace
}  // namespace thinwire
