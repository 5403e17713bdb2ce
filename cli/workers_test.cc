// Tests of ranks as threads: one that throws ends the run, with one line that names it.
// SPDX-License-Identifier: Apache-2.0
#include "cli/workers.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cli/recipe_file.h"

namespace thinwire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Recipe tiny() {
  const std::string sets[] = {"data.name=shakespeare",  "model.name=char-lstm",
                              "model.hidden=8",         "train.max_steps=50",
                              "train.batch=8",          "data.sequence=8",
                              "train.evaluate_every=0", "exchange.deadline_seconds=20"};
  return make_recipe("tiny", parse_sets(sets, recipe_keys()), recipe_keys()).value();
}

std::string failure_of(Workers& workers, const RunEvents& events) {
  try {
    workers.train(tiny(), {}, events);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Workers, AreAsManyAsWantedOrElseAsTheRecipeSays) {
  EXPECT_EQ(Workers::find(3, tiny()).value().size(), 3);
  EXPECT_EQ(Workers::find(std::nullopt, tiny()).value().size(),
            tiny().options.integer("run.workers"));
  EXPECT_EQ(Workers::find(1, tiny()).value().describe(), "1 worker");
  EXPECT_EQ(Workers::find(3, tiny()).value().describe(), "3 workers (threads)");
}

TEST(Workers, OneThatThrowsIsNamedInOneLineAndNobodyHangs) {
  Workers workers = Workers::find(3, tiny()).value();
  RunEvents events;
  events.step = [](const StepEvent& event) {
    if (event.step == 3) throw std::runtime_error("disk on fire\nbacktrace\nbacktrace");
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(failure_of(workers, events), "rank 0: disk on fire");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

Recipe elastic(const std::string& replacements) {
  const std::string sets[] = {"data.name=shakespeare",
                              "model.name=char-lstm",
                              "model.hidden=8",
                              "train.max_steps=12",
                              "train.batch=8",
                              "data.sequence=8",
                              "data.train_samples=32",
                              "train.checkpoint_every=1",
                              "train.evaluate_every=0",
                              "exchange.deadline_seconds=20",
                              "train.epochs=100",
                              "run.elastic=true",
                              "run.replacements=" + replacements};
  return make_recipe("elastic", parse_sets(sets, recipe_keys()), recipe_keys()).value();
}

TEST(Workers, OfAnElasticRunThatFailAreReplaced) {
  for (const char* replacements : {"0", "1"}) {
    Workers workers = Workers::find(3, elastic(replacements)).value();
    std::vector<uint64_t> steps;
    std::string notes;
    RunEvents events;
    events.step = [&](const StepEvent& event) {
      steps.push_back(event.step);
      if (event.step == 3 && steps.size() == 3) throw std::runtime_error("disk on fire");
      if (event.step == 6)  // time for the new one, which waits for a checkpoint
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    };
    events.note = [&](std::string_view text) { notes += std::string(text) + "\n"; };
    const RunSummary summary = workers.train(elastic(replacements), {}, events);
    EXPECT_TRUE(summary.finished);
    EXPECT_THAT(notes, HasSubstr("worker 0 is lost"));
    EXPECT_THAT(notes, HasSubstr("disk on fire"));
    EXPECT_THAT(summary.lost_workers, ::testing::ElementsAre(0));
    EXPECT_EQ(steps.back(), 12u);
    if (replacements == std::string("1")) {
      EXPECT_THAT(notes, HasSubstr("worker 3 joined"));
      EXPECT_THAT(summary.joined_workers, ::testing::ElementsAre(3));
      EXPECT_EQ(summary.world_size, 3);
    } else {
      EXPECT_EQ(summary.world_size, 2);
    }
  }
}

// Open MPI lets nobody join.
TEST(Workers, UnderMpirunHaveNoReplacements) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const auto workers = Workers::find(std::nullopt, elastic("1"));
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_RANK");
  ASSERT_FALSE(workers.is_ok());
  EXPECT_THAT(workers.status().message(),
              ::testing::AllOf(HasSubstr("run.replacements"), HasSubstr("mpirun")));
}

TEST(Workers, OfAnElasticRunThatAllFailEndIt) {
  Workers workers = Workers::find(2, elastic("2")).value();
  RunEvents events;
  events.step = [](const StepEvent& event) {
    if (event.step >= 3) throw std::runtime_error("disk on fire");
  };
  try {
    workers.train(elastic("2"), {}, events);
    FAIL() << "nobody was left";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("disk on fire"));
    EXPECT_THAT(error.what(), StartsWith("rank "));
  }
}

TEST(Workers, WhatRanksAgreeOnNamesNone) {
  Workers workers = Workers::find(3, tiny()).value();
  try {
    workers.train(tiny(), {.data = {}, .out = {}, .resume = "/nowhere"}, {});
    FAIL() << "resumed from nowhere";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere"));
    EXPECT_THAT(error.what(), ::testing::Not(StartsWith("rank")));
  }
}

}  // namespace
}  // namespace thinwire::cli
