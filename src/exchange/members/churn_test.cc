// Ranks killed and joined at random moments, over threads: nothing hangs, weights stay equal, and
// what is owed is accounted for. THINWIRE_CHURN_EVENTS says how many events there are (50),
// THINWIRE_CHURN_SEED which.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "stream/memory_slot.h"

namespace thinwire::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Sums = std::map<std::string, std::vector<double>>;  // by tensor

constexpr std::chrono::milliseconds kDeadline{1000};

uint64_t setting(const char* name, uint64_t fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// A worker with weights, and what is known of it when it dies.
struct Trainee : ElasticWorker {
  explicit Trainee(int number) : ElasticWorker(number) {
    for (const TensorSpec& tensor : small_model()) weights.emplace_back(tensor.count());
  }
  Tensors weights;
  std::shared_ptr<Life> life = std::make_shared<Life>();
  std::map<uint64_t, double> owed;  // norm, before each step
  uint32_t generation = 0;          // of its group
  uint64_t next = 0;                // step
  bool failed = false;              // its last step, or regroup
  bool dead = false;
  size_t of_ranks = 0;                      // in its group
  std::map<std::string, Values> residuals;  // before its last step
};

class Churn {
 public:
  Churn(ExchangeOptions options, uint64_t seed) : options_(std::move(options)), draws_(seed) {
    for (const TensorSpec& tensor : small_model())
      for (Sums* sums : {&contributed_, &lost_}) (*sums)[tensor.name].resize(tensor.count());
    for (int i = 0; i < 3; ++i) join();
  }

  // Rounds until there were so many kills, joins and departures.
  void run(uint64_t events) {
    while (kills_ + joins_ + departures_ < events && !::testing::Test::HasFailure()) round();
    std::cout << "kills " << kills_ << " (silent " << silent_ << ", in regroup " << in_regroup_
              << ", between steps " << in_save_ << "), joins " << joins_ << ", departures "
              << departures_ << ", steps " << steps_ << ", steps mended " << mended_
              << ", longest round " << longest_.count() << " ms, losses reported "
              << reported_.size() << " with norms of " << std::sqrt(reported_squares_)
              << " together\n";
    EXPECT_GT(kills_, 0u);
    EXPECT_GT(steps_, events / 2);
    EXPECT_GT(reported_squares_, 0);
  }

 private:
  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(draws_); }
  bool chance(double share) { return std::bernoulli_distribution(share)(draws_); }

  Trainee& join() {
    ++joins_;
    return *alive_.emplace_back(std::make_shared<Trainee>(number_++));
  }

  void round() {
    const bool clean = std::none_of(alive_.begin(), alive_.end(), [](const auto& one) {
      return one->failed || one->exchange == nullptr;
    });
    for (const auto& one : alive_) one->life->transfers = 1 << 30;
    if (clean && whole_ && alive_.size() > 2 && chance(0.15)) depart();
    Trainee* const newcomer =
        alive_.size() < 6 && chance(alive_.size() < 3 ? 0.9 : 0.3) ? &join() : nullptr;
    std::shuffle(alive_.begin(), alive_.end(), draws_);
    for (const auto& one : alive_) one->life = std::make_shared<Life>();
    // Who dies while members come together: anybody, or after a failure the one that owes nothing.
    const bool dies_now = alive_.size() > 2 && chance(0.2);
    if (dies_now && (clean || newcomer != nullptr))
      doom(clean && newcomer == nullptr ? *alive_[draw(alive_.size())]
           : newcomer != nullptr        ? *newcomer
                                        : *alive_[0],
           draw(12));
    if (!come_together()) return;
    if (alive_.size() > 1 && chance(0.6)) doom(*alive_[draw(alive_.size())], draw(4 * transfers_));
    const bool in_save = alive_.size() > 1 && chance(0.1);
    Trainee* const saver = in_save ? alive_[draw(alive_.size())].get() : nullptr;
    train(1 + draw(3), saver);
  }

  void doom(Trainee& one, size_t transfers) {
    one.life->silent = chance(0.2);
    one.life->transfers = static_cast<int>(transfers);
  }

  void timed(const std::function<void(Trainee&)>& body) {
    const auto since = Clock::now();
    std::vector<ElasticWorker*> workers;
    for (const auto& one : alive_) workers.push_back(one.get());
    on_each(workers, [&](ElasticWorker& worker) { body(static_cast<Trainee&>(worker)); });
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
    longest_ = std::max(longest_, took);
    EXPECT_LT(took, 20 * kDeadline);  // several waits in a row may end by the deadline
  }

  // False if somebody failed; then the next round tries again without the dead.
  bool come_together() {
    ++generation_;
    for (size_t i = 0; i < alive_.size(); ++i)
      numbered_[{generation_, static_cast<int>(i)}] = alive_[i];
    auto groups = make_local_groups(static_cast<int>(alive_.size()));
    std::map<ElasticWorker*, std::unique_ptr<Group>> of;
    for (size_t i = 0; i < alive_.size(); ++i) {
      groups[i]->set_deadline(kDeadline);
      of[alive_[i].get()] = std::make_unique<FrailGroup>(std::move(groups[i]), alive_[i]->life);
      if (alive_[i]->exchange != nullptr && !alive_[i]->failed)
        alive_[i]->residuals = arrays_of(alive_[i]->store, "/residual");
    }
    timed([&](Trainee& one) {
      std::unique_ptr<Group> group = std::move(of.at(&one));
      try {
        ExchangeOptions options = options_;
        options.generation = generation_;
        if (one.exchange == nullptr)
          one.exchange = join_exchange(*group, one.store, small_model(), options, &one.how);
        else
          one.how = one.exchange->regroup(*group, generation_);
        one.failed = false;
        if (one.how.ended && !one.how.ended->skipped) apply(one);
      } catch (const Error&) {
        one.failed = true;
        group->abort("regroup failed");
        return graves_.put(std::move(group));
      }
      one.group = std::move(group);
    });
    const bool all =
        std::none_of(alive_.begin(), alive_.end(), [](const auto& one) { return one->failed; });
    for (const auto& one : alive_) one->dead = one->dead || one->life->transfers < 0;
    if (!all ||
        std::any_of(alive_.begin(), alive_.end(), [](const auto& one) { return one->dead; })) {
      ++in_regroup_;
      for (const auto& one : alive_) one->failed = true;
      bury(/*step_counted=*/false);
      return false;
    }
    for (const auto& one : alive_) {
      one->of_ranks = alive_.size();
      one->life->transfers = 1 << 30;
      if (one->how.ended) ++mended_;
      EXPECT_EQ(one->how.step, alive_[0]->how.step);
      one->next = one->how.step;
      one->generation = generation_;
      one->owed[one->next] = one->store.owed_norm();
    }
    hear_losses();
    for (const auto& one : alive_)
      if (one->how.takes_over) one->weights = alive_[static_cast<size_t>(one->how.source)]->weights;
    check();
    return true;
  }

  // All members report the same losses: those of the dead, each once, with what they told in their
  // last step.
  void hear_losses() {
    const auto key = [](const thinwire::LostRank& lost) {
      return std::tuple(lost.generation, lost.rank, lost.step, lost.owed);
    };
    for (const auto& one : alive_) {
      const auto &mine = one->how.lost, &first = alive_[0]->how.lost;
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), first.begin(), first.end(),
                             [&](const thinwire::LostRank& a, const thinwire::LostRank& b) {
                               return key(a) == key(b);
                             }));
    }
    for (const thinwire::LostRank& lost : alive_[0]->how.lost) {
      const Trainee& who = *numbered_.at({lost.generation, lost.rank});
      EXPECT_TRUE(who.dead) << "worker " << who.id << " is reported lost";
      if (!reported_.insert(who.id).second) continue;
      EXPECT_GE(lost.step + 1, who.next) << who.id;
      if (lost.generation == who.generation) {
        EXPECT_NEAR(lost.owed, who.owed.at(lost.step), 1e-6) << who.id;
      }
      reported_squares_ += lost.owed * lost.owed;
    }
    for (const auto& [at, who] : numbered_) {
      const bool counts = who->dead && who->of_ranks > 0;
      EXPECT_TRUE(!counts || reported_.contains(who->id)) << who->id;
    }
  }

  void apply(Trainee& one) {
    for (size_t i = 0; i < one.weights.size(); ++i)
      for (size_t j = 0; j < one.weights[i].size(); ++j) one.weights[i][j] -= one.values[i][j];
  }

  // `saver` dies while it saves, after the first step.
  void train(size_t steps, Trainee* saver) {
    const uint64_t first = alive_[0]->next;
    std::atomic<int> used{0};
    timed([&](Trainee& one) {
      for (uint64_t number = first; number < first + steps && !one.dead; ++number) {
        one.residuals = arrays_of(one.store, "/residual");
        one.owed[number] = one.store.owed_norm();
        const int before = one.life->transfers;
        one.failed = !try_step(one, number);
        one.dead = one.life->transfers < 0;
        if (one.failed) {
          one.group->abort("a step failed");
          return;
        }
        used = before - one.life->transfers;
        ++one.next;
        apply(one);
        if (&one == saver) {
          static_cast<void>(one.store.save());
          one.dead = true;
        }
      }
    });
    if (used > 0) transfers_ = static_cast<size_t>(used);
    if (saver != nullptr && saver->dead) ++in_save_;
    // A step counts if anybody that is alive has counted it.
    uint64_t counted = first;
    for (const auto& one : alive_)
      if (!one->dead) counted = std::max(counted, one->next);
    for (uint64_t number = first; number < counted; ++number) record(number);
    bury(true, counted);
  }

  // A step of all that are in the group; its means are those of anybody that has them.
  void record(uint64_t number) {
    ++steps_;
    const auto model = small_model();
    for (const auto& one : alive_)
      for (size_t i = 0; i < model.size(); ++i) {
        const Values values = gradient(model[i], one->id, number);
        for (size_t j = 0; j < values.size(); ++j)
          contributed_[model[i].name][j] +=
              static_cast<double>(values[j]) / static_cast<double>(alive_.size());
      }
  }

  // What the dead owed, as of the last step that counted: of one that they had staged, that is what
  // they staged.
  void bury(bool step_counted, uint64_t counted = 0) {
    for (const auto& one : alive_) {
      if (!one->dead) continue;
      ++kills_;
      if (one->life->silent) ++silent_;
      std::map<std::string, Values> owed = one->residuals;
      if (step_counted && one->next == counted && !one->failed)
        owed = arrays_of(one->store, "/residual");
      one->exchange.reset();
      if (step_counted && one->next + 1 == counted && one->failed) {
        for (const auto& [name, values] : one->residuals) {
          const std::string key = name.substr(0, name.rfind('/'));
          one->store
              .open<MemorySlot<Feedback>>(
                  key, []() -> std::unique_ptr<MemorySlot<Feedback>> { return nullptr; })
              .object()
              .commit();
        }
        owed = arrays_of(one->store, "/residual");
      }
      for (const auto& [name, values] : owed) {
        auto& sums = lost_.at(name.substr(0, name.find("/feedback")));
        for (size_t i = 0; i < values.size(); ++i)
          sums[i] += values[i] / static_cast<double>(one->of_ranks);
      }
    }
    whole_ = std::erase_if(alive_, [](const auto& one) { return one->dead; }) == 0;
  }

  void depart() {
    ++departures_;
    Trainee* const leaver = alive_[draw(alive_.size())].get();
    timed([&](Trainee& one) { one.exchange->hand_over(&one == leaver); });
    std::erase_if(alive_, [&](const auto& one) { return one.get() == leaver; });
  }

  // Everybody is alive and none has a step open.
  void check() {
    for (const auto& one : alive_) EXPECT_TRUE(same_bits(one->weights, alive_[0]->weights));
    Sums owed;
    for (const auto& one : alive_)
      for (const auto& [name, values] : arrays_of(one->store, "/residual")) {
        auto& sums = owed[name.substr(0, name.find("/feedback"))];
        sums.resize(values.size());
        for (size_t i = 0; i < values.size(); ++i)
          sums[i] += values[i] / static_cast<double>(alive_.size());
      }
    const auto model = small_model();
    for (size_t t = 0; t < model.size(); ++t) {
      const std::string& name = model[t].name;
      for (size_t i = 0; i < model[t].count(); ++i) {
        const double rest = owed.contains(name) ? owed.at(name)[i] : 0.0;
        ASSERT_NEAR(rest + lost_.at(name)[i] - alive_[0]->weights[t][i], contributed_.at(name)[i],
                    1e-5)
            << name << " " << i << " in generation " << generation_;
      }
    }
  }

  // Groups whose waits others may still be in.
  struct Graves {
    void put(std::unique_ptr<Group> group) {
      const std::lock_guard lock(mutex);
      groups.push_back(std::move(group));
    }
    std::mutex mutex;
    std::vector<std::unique_ptr<Group>> groups;
  };

  const ExchangeOptions options_;
  std::mt19937_64 draws_;
  Graves graves_;
  std::vector<std::shared_ptr<Trainee>> alive_;                            // in the order of ranks
  std::map<std::pair<uint32_t, int>, std::shared_ptr<Trainee>> numbered_;  // by generation and rank
  std::set<int> reported_;                                                 // workers that were lost
  double reported_squares_ = 0;
  int number_ = 0;
  uint32_t generation_ = 0;
  bool whole_ = false;       // nobody died since members came together
  size_t transfers_ = 20;    // of a rank in a step
  Sums contributed_, lost_;  // to the mean
  uint64_t kills_ = 0, silent_ = 0, in_regroup_ = 0, in_save_ = 0, joins_ = 0, departures_ = 0,
           steps_ = 0, mended_ = 0;
  std::chrono::milliseconds longest_{0};
};

class ChurnTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Codecs, ChurnTest,
                         ::testing::Values("topk:density=0.05", "powersgd:rank=1"));

TEST_P(ChurnTest, NothingHangsWeightsStayEqualAndDebtsAreAccountedFor) {
  Churn churn({.codec = GetParam(), .debts = true}, setting("THINWIRE_CHURN_SEED", 3));
  churn.run(setting("THINWIRE_CHURN_EVENTS", 50) / 2);
}

}  // namespace
}  // namespace thinwire::testing
