// For tests of ranks that are lost: three workers in the middle of a run, of which one may die.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/lost_rank.h"

namespace thinwire::testing {

inline const ExchangeOptions kSparse{.codec = "topk:density=0.05", .method = "gather"};

// Three workers after two steps, of which the last one may die.
struct Three {
  explicit Three(const ExchangeOptions& options,
                 std::chrono::milliseconds deadline = kLongDeadline) {
    auto groups = make_local_groups(3);
    std::map<ElasticWorker*, std::unique_ptr<Group>> of;
    for (size_t i = 0; i < 3; ++i) {
      groups[i]->set_deadline(deadline);
      of[all[i]] = std::move(groups[i]);
    }
    of[&c] = std::make_unique<FrailGroup>(std::move(of[&c]), life);
    on_each(all, [&](ElasticWorker& worker) {
      worker.group = std::move(of.at(&worker));
      ExchangeOptions own = options;
      own.generation = 1;
      worker.exchange = join_exchange(*worker.group, worker.store, small_model(), own);
      step(worker, 0);
      const int before = life->transfers;
      step(worker, 1);
      if (&worker == &c) in_step = before - life->transfers;
    });
  }

  // All do step 2; returns on which of them it counted.
  std::vector<bool> last_step() {
    std::array<std::atomic<bool>, 3> counted{};
    on_each(all, [&](ElasticWorker& worker) {
      counted[static_cast<size_t>(worker.id)] = try_step(worker, 2);
    });
    return {counted[0], counted[1], counted[2]};
  }

  ElasticWorker a{0}, b{1}, c{2};
  std::vector<ElasticWorker*> all{&a, &b, &c};
  std::shared_ptr<Life> life = std::make_shared<Life>();
  int in_step = 0;  // transfers of c
};

}  // namespace thinwire::testing
