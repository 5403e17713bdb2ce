// Tests of workers that step by themselves in the trainer: special cases, evaluation, faults.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "train/checkpoint.h"
#include "train/norm_statistics.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ToyOptions local(const std::string& method, const Settings& more = {}) {
  ToyOptions toy;
  toy.settings = more;
  toy.settings.emplace_back("sync.method", method);
  return toy;
}

TEST(LocalSteps, AveragingEveryStepIsDataParallelToRounding) {
  const auto shared = run_toy(3, {});
  const auto averaged = run_toy(3, local("average:tau=1"));
  // Parts of 20 and of 10 samples over 3 workers are unequal: 7, 7, 6 and 4, 3, 3.
  const auto even = run_toy(2, local("average:tau=1"));
  EXPECT_LT(distance(even[0].weights, run_toy(2, {})[0].weights), 2e-6);
  EXPECT_LT(distance(averaged[0].weights, shared[0].weights), 0.05);
  EXPECT_TRUE(same_bits(averaged[0].weights, averaged[2].weights));
  EXPECT_EQ(averaged[0].summary.weights_xxh3, averaged[2].summary.weights_xxh3);
  EXPECT_EQ(averaged[0].summary.samples, 180u);
}

// One worker with every method that has nobody to talk to.
TEST(LocalSteps, OneWorkerIsPlainSgd) {
  const auto plain = run_toy(1, {});
  for (const char* method : {"average:tau=2", "leader:tau=2,tau_global=2", "easgd:tau=2", "gossip"})
    EXPECT_TRUE(same_bits(run_toy(1, local(method))[0].weights, plain[0].weights)) << method;
}

// The weights of each worker as they are when a test begins, from the loss it is judged by.
std::vector<EvaluationEvent> tests_of(const std::string& method, const Settings& more = {}) {
  return run_toy(4, local(method, more))[0].tests;
}

TEST(LocalSteps, CommonModelAndLeaderAreBothJudged) {
  const auto tests =
      tests_of("leader:tau=2,tau_global=4,groups=2", {{"train.evaluate_every", "0.4"}});
  ASSERT_EQ(tests.size(), 5u);
  EXPECT_FALSE(tests[0].leader);  // after two steps there was no global round yet
  EXPECT_GT(*tests[0].spread, 0);
  for (size_t i = 1; i < 5; ++i) {
    ASSERT_TRUE(tests[i].leader) << i;
    EXPECT_GE(*tests[i].leader, 0);
    EXPECT_LT(*tests[i].leader, 4);
    EXPECT_TRUE(tests[i].leader_error);
  }
  // A pull of all to the leader: everybody is it, and it is their mean.
  const auto pulled =
      tests_of("leader:tau=2,tau_global=2,pull_global=1", {{"train.evaluate_every", "0.4"}});
  EXPECT_LT(*pulled[0].spread, 1e-6);
  EXPECT_EQ(*pulled[0].leader_error, pulled[0].error);
}

TEST(LocalSteps, AveragedWorkersAreTheSame) {
  const auto tests = tests_of("average:tau=5", {{"train.evaluate_every", "0.2"}});
  ASSERT_EQ(tests.size(), 10u);
  EXPECT_GT(*tests[3].spread, 1e-4);
  EXPECT_LT(*tests[4].spread, 1e-6);
  EXPECT_FALSE(tests[4].leader);
}

// Judging changes no worker: more tests, the same end.
TEST(LocalSteps, TestsLeaveNoTrace) {
  for (const char* method : {"leader:tau=2,tau_global=4,groups=2", "easgd:tau=3", "parle:tau=3"}) {
    ToyOptions often = local(method, {{"train.evaluate_every", "0.2"}});
    ToyOptions seldom = local(method, {{"train.evaluate_every", "0"}});
    often.norm = seldom.norm = true;
    EXPECT_TRUE(same_bits(run_toy(4, often)[3].weights, run_toy(4, seldom)[3].weights)) << method;
  }
}

TEST(LocalSteps, ResumesBitForBit) {
  for (const char* method :
       {"leader:tau=2,tau_global=4,groups=2", "easgd:tau=3", "diloco:tau=2", "sparseloco:tau=2",
        "parle:tau=3", "gossip", "streaming:tau=4,fragments=2,delay=3,mix=0.5"}) {
    const TemporaryFolder folder;
    ToyOptions toy = local(method, {{"optimizer.momentum", "0.9"}});
    toy.norm = true;
    toy.dropout = 0.25;
    const auto whole = run_toy(4, toy);
    for (const uint64_t stop : {3, 5}) {
      ToyOptions first = toy;
      first.places.out = (folder / std::to_string(stop)).string();
      first.stop_after = stop;
      run_toy(4, first);
      ToyOptions second = toy;
      second.places.out = second.places.resume = first.places.out;
      const auto resumed = run_toy(4, second);
      for (size_t rank = 0; rank < 4; ++rank)
        EXPECT_TRUE(same_bits(resumed[rank].weights, whole[rank].weights)) << method << stop;
      EXPECT_EQ(resumed[0].summary.final_test_loss, whole[0].summary.final_test_loss);
      EXPECT_EQ(resumed[0].tests.back().spread, whole[0].tests.back().spread);
      EXPECT_EQ(resumed[0].tests.back().leader_error, whole[0].tests.back().leader_error);
      EXPECT_EQ(resumed[0].summary.sent_bytes_per_step, whole[0].summary.sent_bytes_per_step);
    }
  }
}

TEST(LocalSteps, AnotherNumberOfWorkersGoesOnFromTheMean) {
  const TemporaryFolder folder;
  ToyOptions toy = local("average:tau=4");
  toy.places.out = (folder / "run").string();
  toy.stop_after = 4;
  run_toy(2, toy);
  toy.places.resume = toy.places.out;
  toy.stop_after = UINT64_MAX;
  const auto resumed = run_toy(3, toy);
  EXPECT_EQ(resumed[0].summary.steps, 10u);
  EXPECT_THAT(resumed[0].notes, Contains(HasSubstr("saved by 2 ranks, resumed by 3")));
}

// 8 x 16 + 16 + 16 x 16 + 16 + 16 x 3 + 3 weights, sent whole every fifth of ten steps.
TEST(LocalSteps, BytesAreThoseOfRounds) {
  const uint64_t values = 8 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3;
  const RunSummary summary = run_toy(2, local("average:tau=5"))[0].summary;
  EXPECT_EQ(summary.dense_bytes_per_step, 4 * values);
  EXPECT_GT(summary.wire_ratio, 3.5);  // a fifth of the rounds, and frames
  EXPECT_LT(summary.wire_ratio, 5);
  EXPECT_EQ(summary.codec_ratio, 1);
  EXPECT_GT(run_toy(2, local("average:tau=5", {{"exchange.codec", "int8"}}))[0].summary.codec_ratio,
            3);  // biases are too short for whole blocks
}

TEST(LocalSteps, RoundsAreInTheMetrics) {
  const TemporaryFolder folder;
  ToyOptions toy = local("leader:tau=2,tau_global=4,groups=2");
  toy.places.out = (folder / "run").string();
  run_toy(4, toy);
  std::ifstream metrics(folder / "run/metrics.jsonl");
  std::vector<uint64_t> rounds;
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("round")) continue;
    rounds.push_back(json["step"].get<uint64_t>());
    EXPECT_EQ(json["round"]["losses"].size(), json["round"]["ranks"].size());
    EXPECT_EQ(json["round"].contains("leader"), json["step"].get<uint64_t>() % 4 == 0);
  }
  EXPECT_EQ(rounds, (std::vector<uint64_t>{2, 4, 6, 8, 10}));
}

// A loss that is no number, on one rank in some steps.
ToyOptions with_nan(const std::string& method, int bad_rank, int first, int last) {
  ToyOptions toy = local(method);
  toy.norm = true;
  toy.change = [=](int rank, Task& task) {
    if (rank != bad_rank) return;
    task.loss = [=, step = 0](const torch::Tensor& outputs, const torch::Tensor& targets) mutable {
      const torch::Tensor loss = torch::nn::functional::cross_entropy(outputs, targets);
      if (!outputs.requires_grad()) return loss;
      const bool bad = step >= first && step <= last;
      ++step;
      return bad ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
    };
  };
  return toy;
}

TEST(LocalSteps, AnOwnGradientThatIsNotFiniteIsNotTaken) {
  const auto run = run_toy(2, with_nan("average:tau=4", 0, 4, 4));
  EXPECT_EQ(run[0].summary.skipped_steps, 1u);
  EXPECT_THAT(run[0].notes,
              Contains(HasSubstr("step 5 skipped: stream 'gradient' of rank 0 has a NaN")));
  for (const torch::Tensor& tensor : run[1].weights)
    EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

TEST(LocalSteps, SeveralInARowEndTheRunNamingTheRank) {
  try {
    run_toy(3, with_nan("average:tau=4", 1, 2, 9));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("5 own gradients in a row are not finite"));
  }
}

TEST(LocalSteps, AsynchronousWorkersTakeTheirStepsTogether) {
  ToyOptions toy = local("leader:tau=2,tau_global=2,asynchronous=true");
  toy.change = [](int rank, Task& task) {  // one of them at a fourth of the speed
    task.loss = [rank](const torch::Tensor& outputs, const torch::Tensor& targets) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 40 : 10));
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  const auto run = run_toy(3, toy);
  // Five rounds of two steps each on average; the steps that are on their way when one is called
  // come on top.
  EXPECT_GE(run[0].summary.samples, 150u);
  EXPECT_LE(run[0].summary.samples, 300u);
  EXPECT_EQ(run[0].summary.weights_xxh3, run[2].summary.weights_xxh3);
  ASSERT_FALSE(run[0].tests.empty());
}

// Workers whose steps differ still save into one place.
TEST(LocalSteps, AsynchronousWorkersSaveOneCheckpoint) {
  const TemporaryFolder folder;
  ToyOptions toy = local("leader:tau=4,tau_global=4,groups=1,asynchronous=true",
                         {{"run.slow", "1;25"}, {"train.epochs", "4"}});
  toy.places.out = folder.path().string();
  const auto results = run_toy(2, toy);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(folder / "summary.json"));
  EXPECT_EQ(results[0].summary.steps, results[0].tests.back().step);
}

TEST(LocalSteps, AFinishedAsynchronousRunStaysAsItIsWhenResumed) {
  const TemporaryFolder folder;
  ToyOptions toy = local("leader:tau=2,tau_global=4,groups=2,asynchronous=true");
  toy.places.out = folder.path().string();
  const auto finished = run_toy(3, toy);
  toy.places.resume = toy.places.out;
  for (int time = 0; time < 2; ++time) {
    const auto resumed = run_toy(3, toy);
    EXPECT_EQ(resumed[0].summary.weights_xxh3, finished[0].summary.weights_xxh3);
    EXPECT_EQ(resumed[0].summary.steps, finished[0].summary.steps);
    EXPECT_EQ(resumed[0].summary.samples, finished[0].summary.samples);
    EXPECT_TRUE(resumed[0].steps.empty());
  }
  toy.settings.emplace_back("train.epochs", "4");
  const auto longer = run_toy(3, toy);
  EXPECT_GT(longer[0].summary.samples, finished[0].summary.samples);
  EXPECT_GT(longer[0].summary.steps, finished[0].summary.steps);
}

// The rate of a worker, and its samples, follow its own steps. Rank 0, whose number the checkpoint
// has, is slow.
TEST(LocalSteps, AnAsynchronousWorkerResumesAtItsOwnStep) {
  const TemporaryFolder folder;
  ToyOptions toy = local("leader:tau=4,tau_global=4,groups=1,asynchronous=true",
                         {{"run.slow", "25;1"}, {"train.epochs", "4"}});
  toy.places.out = folder.path().string();
  toy.change = [](int, Task& task) {
    const auto forward = task.forward;
    task.forward = [forward](const torch::Tensor& inputs) {
      // Long enough that a machine's other work does not turn the order round.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return forward(inputs);
    };
  };
  const auto train = [&] {
    std::vector<ToyResult> results(2);
    run_local(2, [&](Group& group) {
      results[static_cast<size_t>(group.rank())] =
          train_toy_in(group, group.rank(), toy, /*tells=*/true);
    });
    return results;
  };
  const auto before = train();
  ASSERT_GT(before[1].steps.back(), 2 * before[0].steps.back());
  toy.places.resume = toy.places.out;
  toy.settings.emplace_back("train.epochs", "6");
  const auto resumed = train();
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(resumed[rank].steps.front(), before[rank].steps.back() + 1) << rank;
}

// A worker that is told to take 25 times as long takes fewer of the steps that all share.
TEST(LocalSteps, ASlowWorkerTakesFewerOfTheCommonSteps) {
  ToyOptions toy = local("leader:tau=4,tau_global=4,groups=1,asynchronous=true",
                         {{"run.slow", "1;25"}, {"train.epochs", "8"}});
  std::vector<uint64_t> passes(2);
  toy.change = [&](int rank, Task& task) {
    const auto forward = task.forward;
    task.forward = [&passes, rank, forward](const torch::Tensor& inputs) {
      if (torch::GradMode::is_enabled()) ++passes[static_cast<size_t>(rank)];
      // Long enough that a machine's other work does not turn the order round.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return forward(inputs);
    };
  };
  run_toy(2, toy);
  EXPECT_GE(passes[0] + passes[1], 80u);
  EXPECT_GT(passes[0], 2 * passes[1]);
}

TEST(LocalSteps, SlownessChangesNoBits) {
  for (const char* method : {"", "average:tau=2"}) {
    ToyOptions slow = local(method);
    const auto plain = run_toy(2, slow);
    slow.settings.emplace_back("run.slow", "3;1");
    EXPECT_TRUE(same_bits(run_toy(2, slow)[0].weights, plain[0].weights)) << method;
  }
}

TEST(LocalSteps, LeadersAreJudgedByHeldOutSamples) {
  ToyOptions toy = local("leader:tau=2,tau_global=2,groups=1", {{"sync.judge_samples", "40"},
                                                                {"train.evaluate_batch", "64"},
                                                                {"train.evaluate_every", "0"}});
  toy.held_out = 40;
  // Batches of all held-out samples: one in each round, and on rank 2, which tests them, in the
  // tests.
  std::vector<int> judged(3);
  toy.change = [&](int rank, Task& task) {
    task.loss = [&judged, rank](const torch::Tensor& outputs, const torch::Tensor& targets) {
      if (targets.size(0) == 40) ++judged[static_cast<size_t>(rank)];
      return torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  const auto by_held_out = run_toy(3, toy);
  EXPECT_EQ(judged[0], 5);  // ten steps
  EXPECT_EQ(judged[1], 5);
  toy.settings[0].second = "0";
  judged = {0, 0, 0};
  const auto by_training = run_toy(3, toy);
  EXPECT_EQ(judged[0], 0);
  EXPECT_FALSE(same_bits(by_held_out[0].weights, by_training[0].weights)) << "the same leaders";

  toy.settings[0].second = "40";
  toy.held_out = 0;
  EXPECT_THROW(run_toy(3, toy), Error);
}

TEST(LocalSteps, JudgingNeedsLeadersAndHeldOutSamples) {
  const auto fault_of = [](const Settings& settings) {
    const auto faults = find_faults(parse_options("test", recipe_keys(), settings).value());
    return faults.empty() ? std::nullopt : std::optional(faults.front());
  };
  const std::pair<std::string, std::string> judge = {"sync.judge_samples", "100"},
                                            held = {"data.hold_out", "100"};
  EXPECT_FALSE(fault_of({judge, held, {"sync.method", "leader"}}));
  EXPECT_THAT(fault_of({judge, {"sync.method", "leader"}})->status.message(),
              HasSubstr("needs data.hold_out"));
  EXPECT_EQ(fault_of({judge, held, {"sync.method", "average"}})->key, "sync.judge_samples");
  EXPECT_EQ(fault_of({judge, held})->key, "sync.judge_samples");
  EXPECT_EQ(fault_of({{"data.shards", "zipf"}})->key, "data.shards");
  EXPECT_FALSE(fault_of({{"data.shards", "dirichlet"}}));
  EXPECT_EQ(fault_of({{"data.shards", "dirichlet"}, {"train.fixed_batches", "true"}})->key,
            "data.shards");
}

TEST(LocalSteps, WhatAMethodCannotDoIsFoundInTheRecipe) {
  const auto fault = [](const std::string& method, const Settings& more = {}) {
    Settings settings = more;
    settings.emplace_back("sync.method", method);
    const auto found = find_faults(parse_options("test", recipe_keys(), settings).value());
    return found.empty() ? "" : found.front().key + ": " + found.front().status.message();
  };
  for (const SynchroniserInfo& method : list_synchronisers())
    EXPECT_EQ(fault(std::string(method.name)), "");
  EXPECT_EQ(fault("diloco", {{"exchange.codec", "topk"}}), "");
  EXPECT_THAT(fault("streaming:tau=8,delay=8"),
              HasSubstr("sync.method: streaming: delay is 8 and tau 8: a fragment's round must end "
                        "before its next one begins; choose a delay of 0 to 7"));
  EXPECT_THAT(fault("streaming:tau=2,fragments=3"), HasSubstr("sync.method: streaming: fragments"));
  EXPECT_THAT(fault("leader:tau=4,tau_global=6"), HasSubstr("sync.method: synchroniser 'leader'"));
  EXPECT_THAT(fault("leader:patience=1"),
              HasSubstr("sync.method: synchroniser 'leader': patience"));
  EXPECT_THAT(fault("gossip", {{"exchange.codec", "topk"}}), HasSubstr("exchange.codec: "));
  EXPECT_THAT(fault("average", {{"exchange.momentum", "memory"}}),
              HasSubstr("exchange.momentum: "));
  EXPECT_THAT(fault("average", {{"exchange.codec", "topk"}, {"exchange.feedback", "efx"}}),
              HasSubstr("exchange.feedback: "));
  EXPECT_THAT(fault("average", {{"exchange.codec", "topk"}, {"exchange.method", "dense"}}),
              HasSubstr("exchange.method: "));
  for (const std::string method : {"leader", "gossip"}) {
    EXPECT_THAT(fault(method, {{"exchange.feedback", "dgc"}}),
                HasSubstr("exchange.feedback: synchroniser '" + method + "': has no memory"));
    const std::string no_collective =
        "exchange.method: synchroniser '" + method + "': has no collective";
    EXPECT_THAT(fault(method, {{"exchange.method", "gather"}}), HasSubstr(no_collective));
    EXPECT_THAT(fault(method, {{"exchange.feedback", "dgc"}, {"exchange.method", "gather"}}),
                HasSubstr(no_collective));
  }
}

TEST(LocalSteps, WrongMethodsAreRefusedWithTheChoices) {
  try {
    run_toy(2, local("lead"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'lead'"));
    EXPECT_THAT(error.what(), HasSubstr("leader, easgd"));
  }
}

// One batch of all samples: the statistics are those of libtorch's own formula over them.
TEST(NormStatistics, AreMeansOverBatches) {
  for (const int ranks : {1, 2, 4}) {
    run_local(ranks, [&](Group& group) {
      const ToyData data(64);
      const auto net = std::make_shared<ToyNet>(0, /*norm=*/true);
      OwnBuffers buffers(*net);
      measure_norms(group, task_of_net(net), data, 64, 16, buffers);
      std::vector<uint64_t> ids(64);
      for (uint64_t i = 0; i < 64; ++i) ids[i] = i;
      const torch::Tensor inputs = net->first(data.fetch(ids, {}).inputs).detach();
      torch::Tensor mean = torch::zeros({16}), variance = torch::zeros({16});
      for (int64_t i = 0; i < 4; ++i) {
        mean += inputs.slice(0, 16 * i, 16 * i + 16).mean(0) / 4;
        variance += inputs.slice(0, 16 * i, 16 * i + 16).var(0) / 4;
      }
      EXPECT_TRUE(net->norm->running_mean.allclose(mean, 1e-5, 1e-6));
      EXPECT_TRUE(net->norm->running_var.allclose(variance, 1e-5, 1e-6));
      EXPECT_EQ(net->norm->options.momentum(), 0.1);
      EXPECT_TRUE(net->is_training());
    });
  }
}

}  // namespace
}  // namespace thinwire
