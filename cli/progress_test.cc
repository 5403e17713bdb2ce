// Tests of progress lines on a terminal and in a file.
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Everything that `play` makes the progress write.
std::string written(const Terminal& terminal, const std::function<void(Progress&)>& play) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* memory = open_memstream(&text, &size);
  {
    Progress progress(memory, terminal);
    play(progress);
  }
  std::fclose(memory);
  const std::string result(text, size);
  std::free(text);
  return result;
}

void step_at(Progress& progress, uint64_t step, double seconds) {
  StepReport report;
  report.dense_bytes = 1000;
  report.sent_bytes = 25;
  progress.step({.step = step,
                 .steps = 1000,
                 .epoch = static_cast<double>(step) / 100,
                 .loss = 0.5,
                 .learning_rate = 0.1,
                 .samples = step * 64,
                 .seconds = seconds,
                 .exchange = &report});
}

TEST(Progress, PlainLinesComeEveryTenSeconds) {
  const auto lines = split(written({},
                                   [](Progress& progress) {
                                     for (uint64_t i = 1; i <= 250; ++i)
                                       step_at(progress, i, 0.1 * static_cast<double>(i));
                                   }),
                           '\n');
  EXPECT_THAT(lines,
              ElementsAre("  step 101/1000  epoch 1.01  loss 0.5000  saved 97.5%  640 samples/s  "
                          "1:30 left",
                          "  step 201/1000  epoch 2.01  loss 0.5000  saved 97.5%  640 samples/s  "
                          "1:20 left",
                          ""));
}

TEST(Progress, PlainEvaluationsAndNotesAreAlwaysShown) {
  const std::string text = written({}, [](Progress& progress) {
    step_at(progress, 1, 0.1);
    progress.evaluation({.step = 1, .epoch = 1, .loss = 0.25, .error = 0.125, .samples = 10});
    progress.note("step 2 skipped: NaN on rank 1");
    progress.evaluation({.step = 9,
                         .epoch = 1.5,
                         .loss = 0.25,
                         .error = 0.125,
                         .samples = 10,
                         .hold_out_error = 0.25,
                         .compressed_error = 0.5});
  });
  EXPECT_EQ(text,
            "  epoch 1     test error 12.50%   loss 0.2500   0.1 s\n"
            "  ! step 2 skipped: NaN on rank 1\n"
            "  epoch 1.5   test error 12.50%   compressed 50.00%   held out 25.00%   loss 0.2500   "
            "0.1 s\n");
}

TEST(Progress, LiveLineFitsTheTerminalAndLeavesNothingBehind) {
  const std::string text = written({.live = true}, [](Progress& progress) {
    step_at(progress, 1, 0.1);
    progress.evaluation({.step = 1, .epoch = 1, .loss = 0.25, .error = 0.125, .samples = 10});
    for (uint64_t i = 2; i <= 100; ++i) step_at(progress, i, 0.11 * static_cast<double>(i));
  });
  const auto looks = split(text, '\r');
  EXPECT_EQ(looks.back(), "\033[K");
  for (const std::string& look : looks)
    for (const std::string& line : split(look, '\n')) EXPECT_LE(columns(line), 77u + 3u) << line;
  EXPECT_THAT(text, HasSubstr(" 10%  epoch 1.00  loss 0.500  accuracy 87.5%  saved 97.5%"));
  EXPECT_THAT(text, HasSubstr("1:39 left"));
  EXPECT_THAT(text, Not(HasSubstr("samples/s")));  // no room for it in 80 columns
  EXPECT_THAT(text, Not(HasSubstr("\033[3")));     // no colours were asked for
}

TEST(Progress, LiveLineIsRedrawnTenTimesASecondAtMost) {
  const std::string text = written({.live = true}, [](Progress& progress) {
    for (uint64_t i = 0; i < 1000; ++i) step_at(progress, i, 0.001 * static_cast<double>(i));
  });
  EXPECT_LE(split(text, '\r').size(), 12u);
}

TEST(Progress, OneWorkerSavesNothingAndSaysNothing) {
  const std::string text = written({}, [](Progress& progress) {
    for (uint64_t i = 1; i <= 3; ++i)
      progress.step({.step = i,
                     .steps = 3,
                     .epoch = 1,
                     .loss = 1,
                     .learning_rate = 0.1,
                     .samples = i,
                     .seconds = 20.0 * static_cast<double>(i),
                     .exchange = nullptr});
  });
  EXPECT_THAT(text, Not(HasSubstr("saved")));
  EXPECT_THAT(text, EndsWith("0.0 s left\n"));
}

}  // namespace
}  // namespace thinwire::cli
