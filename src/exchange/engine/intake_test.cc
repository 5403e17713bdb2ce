// Intake: who waits for a step hears of its failure, however soon steps begin again.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/testing/error_of.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

struct OneTensor {
  std::vector<TensorSpec> tensors = {{"w", {4}, TensorKind::kLinear}};
  Plan plan;
  std::array<float, 4> values = {};

  OneTensor() {
    plan.streams.push_back({.spec = {}, .tensors = {0}});
    plan.buckets.push_back({{.stream = 0, .begin = 0, .count = 4}});
  }
  TensorView view() { return {.data = values.data(), .count = values.size()}; }
};

TEST(Intake, AFailureReachesWhoWaitsEvenIfStepsBeginAgainAtOnce) {
  for (int i = 0; i < 300; ++i) {
    OneTensor one;
    Intake intake(one.plan, one.tensors, nullptr);
    const Ticket ticket = intake.start(0, one.view());
    std::atomic<bool> waits = false;
    std::string heard;
    std::thread caller([&] {
      waits = true;
      heard = error_of([&] { intake.wait(ticket); });
    });
    while (!waits) std::this_thread::yield();
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    intake.fail(std::make_exception_ptr(Error(ErrorCode::kPeerLost, "rank 3 is lost")));
    if (i % 2 == 0) intake.restart(static_cast<uint64_t>(i % 4));  // the caller waits already
    caller.join();
    EXPECT_THAT(heard, HasSubstr("rank 3 is lost"));
  }
}

TEST(Intake, FinishAsksBeforeItOpensAStepWithoutTensors) {
  OneTensor one;
  Intake intake(one.plan, one.tensors, nullptr);
  const auto refuse = [] { throw Error(ErrorCode::kContract, "the last step is held"); };
  EXPECT_THAT(error_of([&] { intake.finish(refuse); }), HasSubstr("held"));
  intake.between_steps("nothing", [] {});  // no step was opened

  intake.start(0, one.view());
  std::thread worker([&] {
    uint64_t step = 7;
    EXPECT_TRUE(intake.await_step(step));
    EXPECT_EQ(step, 0u);
    StepReport report;
    report.step = step;
    intake.end_step(std::move(report), nullptr);
  });
  EXPECT_EQ(intake.finish(refuse).step, 0u);
  worker.join();
}

// So that the exchange's thread tells the other ranks, however late it wakes.
TEST(Intake, AStepThatLacksTensorsWhenItIsStoppedIsAnError) {
  OneTensor one;
  one.tensors.push_back({"v", {4}, TensorKind::kLinear});
  one.plan.streams.push_back({.spec = {}, .tensors = {1}});
  one.plan.buckets.push_back({{.stream = 1, .begin = 0, .count = 4}});
  Intake intake(one.plan, one.tensors, nullptr);
  intake.start(0, one.view());
  intake.stop();
  uint64_t step = 0;
  EXPECT_THAT(error_of([&] { intake.await_step(step); }), HasSubstr("in the middle of step 0"));
}

}  // namespace
}  // namespace thinwire::testing
