// For tests: toy runs whose workers come and go, on threads, and workers that die at a chosen
// transfer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/testing/elastic_workers.h"
#include "thinwire/members.h"
#include "thinwire/survived.h"
#include "train/toy_task.h"

namespace thinwire {

// Before the meeting of a worker, whose calls count from 0; it may throw.
using BeforeMeeting = std::function<void(int worker, int call)>;

// A worker whose groups fail when its life ends.
class FrailMembers final : public Members {
 public:
  FrailMembers(std::unique_ptr<Members> inner, std::shared_ptr<testing::Life> life,
               std::atomic<int>& came, BeforeMeeting before)
      : inner_(std::move(inner)), life_(std::move(life)), came_(came), before_(std::move(before)) {}
  int number() const noexcept override { return inner_->number(); }
  bool is_newcomer() const noexcept override { return inner_->is_newcomer(); }
  int rank() const noexcept override { return inner_->rank(); }
  Meeting meet(std::chrono::milliseconds patience, bool admit) override {
    if (inner_->is_newcomer()) ++came_;
    if (before_) before_(number(), calls_++);
    Meeting meeting = inner_->meet(patience, admit);
    if (meeting.group != nullptr)
      meeting.group = std::make_unique<testing::FrailGroup>(std::move(meeting.group), life_);
    return meeting;
  }
  bool somebody_waits() override { return inner_->somebody_waits(); }
  bool is_alone() override { return inner_->is_alone(); }
  int worker_of(uint32_t generation, int rank) const override {
    return inner_->worker_of(generation, rank);
  }
  void end() noexcept override { inner_->end(); }

 private:
  const std::unique_ptr<Members> inner_;
  const std::shared_ptr<testing::Life> life_;
  std::atomic<int>& came_;  // newcomers
  const BeforeMeeting before_;
  int calls_ = 0;
};

// What becomes of a worker: its training pass number `after` throws; or it dies after so many
// transfers, counted from that pass on, or from its beginning, where `after` is -1.
struct Fate {
  int after = 0;
  int transfers = -1;
  bool silent = false;
};

struct ElasticToy {
  ToyOptions toy = {};
  int workers = 3;
  int newcomers = 0;                         // they wait before the others take their first step
  std::map<int, Fate> fates = {};            // by worker
  std::map<int, Settings> settings_of = {};  // beside those of all
  BeforeMeeting before_meeting = nullptr;
};

struct WorkerEnd {
  ToyResult result = {};
  std::string error = {};
  bool ended_well = false;
  bool survived = false;  // it failed, and the others know
  int transfers = 0;      // since its fate began
};

// The ends of all workers, by number.
inline std::vector<WorkerEnd> run_elastic(const ElasticToy& run) {
  std::vector<WorkerEnd> ends(static_cast<size_t>(run.workers + run.newcomers));
  MeetingPlace place(run.workers);
  std::atomic<int> came{0};
  std::vector<std::unique_ptr<Members>> members;
  std::vector<std::shared_ptr<testing::Life>> lives;
  for (size_t i = 0; i < ends.size(); ++i) {
    lives.push_back(std::make_shared<testing::Life>());
    members.push_back(
        std::make_unique<FrailMembers>(place.enter(), lives.back(), came, run.before_meeting));
  }
  const auto change = [&](int number, Task& task) {
    if (run.toy.change) run.toy.change(number, task);
    const auto found = run.fates.find(number);
    const Fate fate = found == run.fates.end() ? Fate{.after = -2} : found->second;
    const std::shared_ptr<testing::Life> life = lives[static_cast<size_t>(number)];
    const auto plain = task.loss;
    task.loss = [&came, &run, fate, life, plain, pass = 0](const torch::Tensor& outputs,
                                                           const torch::Tensor& targets) mutable {
      const bool trains = outputs.requires_grad();
      if (trains && pass == 0 && run.newcomers > 0 && came < run.newcomers) {
        while (came < run.newcomers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      if (trains && pass++ == fate.after) {
        if (fate.transfers < 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others end their step
          throw std::runtime_error("the disk is full");
        }
        life->silent = fate.silent;
        life->transfers = fate.transfers;
      }
      return plain ? plain(outputs, targets)
                   : torch::nn::functional::cross_entropy(outputs, targets);
    };
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ends.size(); ++i)
    threads.emplace_back([&, i] {
      const auto number = static_cast<int>(i);
      ToyOptions toy = run.toy;
      toy.settings.emplace_back("run.elastic", "true");
      if (const auto own = run.settings_of.find(number); own != run.settings_of.end())
        toy.settings.insert(toy.settings.end(), own->second.begin(), own->second.end());
      toy.change = change;
      const auto fate = run.fates.find(number);
      if (fate != run.fates.end() && fate->second.after == -1) {
        lives[i]->silent = fate->second.silent;
        lives[i]->transfers = fate->second.transfers;
      }
      const std::unique_ptr<Members> mine = std::move(members[i]);
      try {
        ends[i].result = train_toy_in(*mine, number, toy, true);
        ends[i].ended_well = true;
      } catch (const std::exception& error) {
        ends[i].error = error.what();
        ends[i].survived = dynamic_cast<const SurvivedError*>(&error) != nullptr;
      }
      if (fate != run.fates.end()) ends[i].transfers = fate->second.transfers - lives[i]->transfers;
    });
  threads.clear();
  return ends;
}

}  // namespace thinwire
