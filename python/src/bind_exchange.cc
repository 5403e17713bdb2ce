// exchange.h: one step of an exchange among ranks that are threads.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <set>

#include "bindings.h"
#include "buffer.h"
#include "step_report.h"
#include "store_handle.h"
#include "stream_spec.h"
#include "thinwire/exchange.h"

namespace thinwire::python {
namespace {

// What all ranks share.
struct Round {
  std::vector<TensorSpec> tensors;
  ExchangeOptions options;
  std::chrono::milliseconds deadline{};
  std::vector<std::vector<Buffer>> gradients;  // [rank][tensor]
  std::vector<Buffer> means;                   // [tensor]; rank 0's
};

struct Outcome {
  StepReport report;
  std::vector<StreamSpec> streams;
};

// One rank's step. The exchange writes means over gradients, so each rank works on a copy; rank 0's
// copy is the result.
Outcome run_rank(Group& group, const Round& round, Store& store) {
  group.set_deadline(round.deadline);
  const auto rank = static_cast<size_t>(group.rank());
  std::deque<std::vector<float>> copies;  // outlive the exchange, whose thread works on them
  const auto exchange = make_exchange(group, store, round.tensors, round.options);
  for (size_t tensor = round.tensors.size(); tensor-- > 0;) {  // as a backward pass makes them
    const auto from = round.gradients[rank][tensor].floats();
    std::span<float> values;
    if (rank == 0)
      values = round.means[tensor].writable_floats();
    else
      values = copies.emplace_back(from.size());
    std::copy(from.begin(), from.end(), values.begin());
    exchange->start(tensor, {.data = values.data(), .count = values.size()});
  }
  return {.report = exchange->finish(), .streams = exchange->streams()};
}

// `stores` has one for each rank, or is empty.
std::vector<Outcome> run_ranks(const Round& round, const std::vector<StoreHandle*>& stores) {
  std::vector<std::unique_ptr<UseMark::Guard>> guards;
  for (StoreHandle* store : stores)
    guards.push_back(std::make_unique<UseMark::Guard>(store->use, StoreHandle::kWho));
  std::vector<Outcome> outcomes(round.gradients.size());
  run_local(static_cast<int>(outcomes.size()), [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Store forgotten;
    outcomes[rank] = run_rank(group, round, stores.empty() ? forgotten : stores[rank]->store);
  });
  return outcomes;
}

void check(const Round& round, const std::vector<StoreHandle*>& stores) {
  const auto require = [](bool held, const char* what) {
    if (!held) throw Error(ErrorCode::kContract, std::string("all_reduce: ") + what);
  };
  require(!round.gradients.empty(), "no ranks");
  std::set<StoreHandle*> different(stores.begin(), stores.end());
  require(different.size() == stores.size(), "one store for two ranks");
  require(stores.empty() || stores.size() == round.gradients.size(), "one store for each rank");
  require(round.means.size() == round.tensors.size(), "one mean for each tensor");
  for (size_t i = 0; i < round.tensors.size(); ++i) {
    const size_t count = round.tensors[i].count();
    require(round.means[i].floats().size() == count, "a mean is not as long as its tensor");
    for (const auto& rank : round.gradients)
      require(rank.size() == round.tensors.size() && rank[i].floats().size() == count,
              "ranks differ in their tensors");
  }
}

std::vector<Row> all_reduce(const std::vector<TensorTuple>& tensors,
                            const std::vector<std::vector<nb::object>>& gradients,
                            const std::vector<nb::object>& means, const std::string& codec,
                            const std::string& exchange, const std::string& feedback,
                            const std::string& combine, const std::string& grouping,
                            const std::vector<StoreHandle*>& stores, size_t bucket_bytes,
                            uint64_t seed, uint64_t step, uint64_t steps_per_epoch, int max_skipped,
                            double deadline_seconds) {
  Round round;
  round.tensors = tensor_specs(tensors);
  round.options.codec = codec;
  round.options.method = exchange;
  round.options.feedback = feedback;
  round.options.combine = combine;
  round.options.grouping = parse_grouping(grouping).value();
  round.options.bucket_bytes = bucket_bytes;
  round.options.seed = seed;
  round.options.first_step = step;
  round.options.steps_per_epoch = steps_per_epoch;
  round.options.max_skipped = max_skipped;
  round.deadline = std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000));
  for (const auto& rank : gradients) {
    auto& buffers = round.gradients.emplace_back();
    for (const nb::object& array : rank) buffers.emplace_back(array, Buffer::kRead);
  }
  for (const nb::object& array : means) round.means.emplace_back(array, Buffer::kWrite);
  check(round, stores);

  std::vector<Outcome> outcomes;
  {
    const nb::gil_scoped_release released;
    outcomes = run_ranks(round, stores);
  }
  std::vector<Row> reports;
  for (const Outcome& outcome : outcomes)
    reports.push_back(report_row(outcome.report, outcome.streams));
  return reports;
}

}  // namespace

void bind_exchange(nb::module_& module) {
  module.def("all_reduce", &all_reduce, nb::arg("tensors"), nb::arg("gradients"), nb::arg("means"),
             nb::arg("codec"), nb::arg("exchange"), nb::arg("feedback"), nb::arg("combine"),
             nb::arg("grouping"), nb::arg("stores"), nb::arg("bucket_bytes"), nb::arg("seed"),
             nb::arg("step"), nb::arg("steps_per_epoch"), nb::arg("max_skipped"),
             nb::arg("deadline_seconds"));
}

}  // namespace thinwire::python
