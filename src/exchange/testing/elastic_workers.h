// For tests of ranks that come and go: workers that outlive groups, and groups whose owner dies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/lost_rank.h"
#include "thinwire/exchange.h"
#include "thinwire/group.h"
#include "thinwire/store.h"

namespace thinwire::testing {

// A process of an elastic run: its store and exchange outlive groups.
struct ElasticWorker {
  explicit ElasticWorker(int number) : id(number) {}

  const int id;
  Store store;
  std::unique_ptr<Group> group;
  std::unique_ptr<Exchange> exchange;
  Tensors values;
  Regrouped how;
};

// Calls body(worker) on a thread for each of them.
inline void on_each(const std::vector<ElasticWorker*>& workers,
                    const std::function<void(ElasticWorker&)>& body) {
  std::vector<std::jthread> threads;
  for (ElasticWorker* const worker : workers)
    threads.emplace_back([&body, worker] { body(*worker); });
}

// All of them go on together, in this order of ranks; those without an exchange join.
inline void regroup(const std::vector<ElasticWorker*>& workers, uint32_t generation,
                    const ExchangeOptions& options) {
  auto groups = make_local_groups(static_cast<int>(workers.size()));
  std::map<ElasticWorker*, std::unique_ptr<Group>> of;
  for (size_t i = 0; i < workers.size(); ++i) of[workers[i]] = std::move(groups[i]);
  on_each(workers, [&](ElasticWorker& worker) {
    std::unique_ptr<Group> group = std::move(of.at(&worker));
    group->set_deadline(kLongDeadline);
    ExchangeOptions own = options;
    own.generation = generation;
    if (worker.exchange == nullptr)
      worker.exchange = join_exchange(*group, worker.store, small_model(), own, &worker.how);
    else
      worker.how = worker.exchange->regroup(*group, generation);
    worker.group = std::move(group);
  });
}

inline StepReport step(ElasticWorker& worker, uint64_t number) {
  worker.values = gradients(small_model(), worker.id, number);
  for (size_t i = worker.values.size(); i-- > 0;)
    worker.exchange->start(i, {.data = worker.values[i].data(), .count = worker.values[i].size()});
  return worker.exchange->finish();
}

// The values of all arrays of a kind, by name.
inline std::map<std::string, Values> arrays_of(const Store& store, std::string_view ending) {
  std::map<std::string, Values> found;
  for (const StateArray& array : store.save()) {
    if (!std::string_view(array.name).ends_with(ending)) continue;
    Values values(array.data.size() / sizeof(float));
    copy_state({array}, array.name, std::span(values)).or_throw();
    found[array.name] = std::move(values);
  }
  return found;
}

// A rank's group, whose owner dies when it starts one transfer too many.
struct Life {
  std::atomic<int> transfers{1 << 30};  // that are left
  bool silent = false;                  // as a machine that loses power: the others hear nothing
};

class FrailGroup final : public Group {
 public:
  FrailGroup(std::unique_ptr<Group> inner, std::shared_ptr<Life> life)
      : inner_(std::move(inner)), life_(std::move(life)) {
    set_deadline(inner_->deadline());
  }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    count();
    return inner_->send(buffer, to, tag);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    count();
    return inner_->receive(buffer, from, tag);
  }
  std::unique_ptr<Group> split(int colour) override {
    inner_->set_deadline(deadline());
    return std::make_unique<FrailGroup>(inner_->split(colour), life_);
  }
  void abort(std::string_view reason) noexcept override {
    if (!life_->silent) inner_->abort(reason);
  }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

 private:
  void count() const {
    if (life_->transfers-- > 0) return;
    // What was begun before may still end.
    if (life_->silent) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    throw Error(ErrorCode::kIo, "the machine lost power");
  }

  const std::unique_ptr<Group> inner_;
  const std::shared_ptr<Life> life_;
};

// Whether a worker's step counted there.
inline bool try_step(ElasticWorker& worker, uint64_t number) {
  try {
    return !step(worker, number).skipped;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace thinwire::testing
