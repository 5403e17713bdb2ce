// Tests of ranks as threads: one that throws ends the run, with one line that names it.
// SPDX-License-Identifier: Apache-2.0
#include "cli/workers.h"

#include <gmock/gmock.h>

#include <chrono>
#include <stdexcept>

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
