// Tests of what owners owe when there are no owners any more: it arrives once, whatever memory the
// ranks have.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "exchange/testing/exchange_testing.h"

namespace thinwire::testing {
namespace {

constexpr int kRanks = 4;
constexpr size_t kCount = 4096;
constexpr uint64_t kOwing = 6;  // steps in which owners come to owe something
const std::vector<TensorSpec> kModel = {{"w", {kCount}, TensorKind::kLinear}};
const char* const kOwners = "sparse-reduce";

StepReport give(Side& side, Values values) {
  side.values = {std::move(values)};
  side.start(0);
  return side.exchange().finish();
}

double norm(const std::vector<double>& values) {
  double square = 0;
  for (const double value : values) square += value * value;
  return std::sqrt(square);
}

struct Case {
  std::string memory;
  double gain;  // how often a gradient counts in the end
};

// First by way of owners, who keep a part; then zeros, by a method without owners, until all has
// arrived.
TEST(OwnerDebts, ArriveOnceWhenOwnersAreNoMore) {
  for (const auto& [memory, gain] :
       {Case{"residual", 1}, Case{"residual:gamma=0.1", 0.1}, Case{"ahead:momentum=0.9", 10},
        Case{"dgc:momentum=0.9,mask=false", 10}, Case{"dgc:momentum=0.9,mask=false,clip=1e20", 10}})
    for (const auto& [codec, method] :
         {std::pair{"topk:density=1", "gather"}, {"fp32", "scatter-reduce"}})
      run_local(kRanks, [&](Group& group) {
        const auto store = std::make_shared<Store>();
        std::vector<double> missing(kCount), all(kCount);
        const auto count_means = [&](const Side& side) {
          for (size_t i = 0; i < kCount; ++i) missing[i] -= side.values[0][i];
        };
        double debt = 0;
        {
          Side side(group, kModel,
                    {.codec = "topk:density=0.05", .feedback = memory, .method = kOwners}, store);
          for (uint64_t step = 0; step < kOwing; ++step) {
            for (int rank = 0; rank < kRanks; ++rank) {
              const Values values = gradient(kModel[0], rank, step);
              for (size_t i = 0; i < kCount; ++i) all[i] += gain * values[i] / kRanks;
            }
            give(side, gradient(kModel[0], group.rank(), step));
            count_means(side);
          }
          const auto owed = owed_by_owner(store->save(), "w", kCount);
          ASSERT_TRUE(owed.has_value());
          debt = norm({owed->begin(), owed->end()});
        }
        ASSERT_GT(debt, 0) << memory;
        for (size_t i = 0; i < kCount; ++i) missing[i] += all[i];
        ExchangeOptions options{.codec = codec, .feedback = memory, .method = method};
        options.first_step = kOwing;
        Side side(group, kModel, options, store);
        for (int step = 0; step < 250; ++step) {
          give(side, Values(kCount));
          count_means(side);
        }
        EXPECT_LT(norm(missing), 1e-5 * norm(all)) << memory << " " << method;
      });
}

Values constant(int rank) { return gradient(kModel[0], rank, 0); }

void expect_mean(const Side& side, double tolerance, const std::string& what) {
  std::vector<double> wrong(kCount), mean(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Values values = constant(rank);
    for (size_t i = 0; i < kCount; ++i) mean[i] += values[i] / double{kRanks};
  }
  for (size_t i = 0; i < kCount; ++i) wrong[i] = side.values[0][i] - mean[i];
  EXPECT_LT(norm(wrong), tolerance * norm(mean)) << what;
}

// What all ranks follow is the mean of their estimates again.
TEST(OwnerDebts, LeaveNoErrorInAnEstimateThatAllFollow) {
  for (const auto& [codec, method, steps] :
       {std::tuple<std::string, std::string, int>{"topk:density=1", "gather", 3},
        {"int8", "scatter-reduce", 20}})
    run_local(kRanks, [&](Group& group) {
      const auto store = std::make_shared<Store>();
      {
        Side side(group, kModel,
                  {.codec = "topk:density=0.05", .feedback = "ef21", .method = kOwners}, store);
        for (uint64_t step = 0; step < kOwing; ++step) give(side, constant(group.rank()));
      }
      ExchangeOptions options{.codec = codec, .feedback = "ef21", .method = method};
      options.first_step = kOwing;
      Side side(group, kModel, options, store);
      for (int step = 0; step < steps; ++step) give(side, constant(group.rank()));
      expect_mean(side, 1e-3, codec);
    });
}

TEST(OwnerDebts, EndWhereAllRanksBeginWithTheSameEstimate) {
  const ExchangeOptions options{.codec = "topk:density=0.3", .feedback = "ef21", .method = kOwners};
  std::vector<std::unique_ptr<ElasticWorker>> owned;
  std::vector<ElasticWorker*> workers;
  for (int id = 0; id < kRanks; ++id) {
    owned.push_back(std::make_unique<ElasticWorker>(id));
    workers.push_back(owned.back().get());
  }
  regroup(workers, 1, options);
  const auto steps = [&](uint64_t begin, uint64_t end) {
    on_each(workers, [&](ElasticWorker& worker) {
      for (uint64_t number = begin; number < end; ++number) {
        worker.values = gradients(small_model(), worker.id, 0);
        for (size_t i = worker.values.size(); i-- > 0;)
          worker.exchange->start(
              i, {.data = worker.values[i].data(), .count = worker.values[i].size()});
        worker.exchange->finish();
      }
    });
  };
  steps(0, kOwing);
  regroup(workers, 2, options);
  steps(kOwing, 200);
  const size_t weight = 7;  // linear.weight
  double wrong = 0, all = 0;
  for (size_t i = 0; i < workers[0]->values[weight].size(); ++i) {
    double mean = 0;
    for (const ElasticWorker* worker : workers)
      mean += gradients(small_model(), worker->id, 0)[weight][i] / double{kRanks};
    wrong += std::pow(workers[0]->values[weight][i] - mean, 2);
    all += mean * mean;
  }
  EXPECT_LT(wrong, 1e-6 * all);
}

}  // namespace
}  // namespace thinwire::testing
