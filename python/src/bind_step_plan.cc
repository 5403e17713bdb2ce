// step_plan.h and codec_choice.h: predicted steps, dictionaries here and dataclasses in the
// package; which one to choose.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "stream_spec.h"
#include "thinwire/codec_choice.h"
#include "thinwire/local_plan.h"
#include "thinwire/step_plan.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

std::pair<double, double> rate_and_latency(const std::string& text) {
  const LinkSpec link = parse_link(text).value();
  return {link.bits_per_second, link.latency_seconds};
}

nb::dict to_dict(const StepPrediction& step) {
  nb::dict row;
  row["method"] = step.method;
  row["seconds"] = step.seconds;
  row["longest_seconds"] = step.longest_seconds;
  row["compute_seconds"] = step.compute_seconds;
  row["encode_seconds"] = step.encode_seconds;
  row["decode_seconds"] = step.decode_seconds;
  row["wire_seconds"] = step.wire_seconds;
  row["limit"] = std::string(to_string(step.limit));
  row["sent_bytes"] = step.busiest_bytes();
  row["between_bytes"] = step.busiest_between();
  row["bytes_exact"] = step.bytes_exact;
  row["memory_bytes"] = step.memory_bytes;
  return row;
}

StepTimeline timeline_of(const std::vector<TensorTuple>& tensors,
                         const std::vector<double>& ready_seconds, double backward_seconds,
                         double compute_seconds) {
  StepTimeline timeline = assumed_timeline(tensor_specs(tensors), backward_seconds);
  timeline.compute_seconds = compute_seconds;
  if (!ready_seconds.empty()) timeline.ready_seconds = ready_seconds;
  return timeline;
}

PlanRequest request_of(int ranks, std::pair<double, double> link, bool own_core, int per_machine,
                       std::pair<double, double> inside, double thread_factor = 1) {
  return {.ranks = ranks,
          .link = {.bits_per_second = link.first, .latency_seconds = link.second},
          .own_core = own_core,
          .per_machine = per_machine,
          .inside = {.bits_per_second = inside.first, .latency_seconds = inside.second},
          .thread_factor = thread_factor};
}

// Threads share a table, and would measure each other. Nobody who holds it waits for Python's lock.
std::mutex measuring;

// A codec takes about a quarter of a second to measure, in which other threads may run. Buckets are
// those of exchanges; those of rounds (`sync`) have a size of their own.
nb::dict predict(const std::vector<TensorTuple>& tensors, const std::vector<double>& ready_seconds,
                 double backward_seconds, double compute_seconds, const std::string& codec,
                 const std::string& method, int ranks, std::pair<double, double> link,
                 bool own_core, CostTable& costs, size_t bucket_kb, int per_machine,
                 std::pair<double, double> inside, const std::string& sync, double thread_factor) {
  const StepTimeline timeline =
      timeline_of(tensors, ready_seconds, backward_seconds, compute_seconds);
  const PlanRequest request = request_of(ranks, link, own_core, per_machine, inside, thread_factor);
  StepPrediction step;
  {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(measuring);
    if (sync.empty()) {
      ExchangeOptions options{.codec = codec};
      options.method = method;
      options.inside = per_machine;
      options.bucket_bytes = bucket_kb * 1024;
      options.norms = false;  // unless a caller of tw.compress asks for them
      step = predict_step(timeline, options, request, costs).value();
    } else {
      const SynchroniserOptions rounds{.method = sync, .codec = codec, .exchange = method};
      step = predict_local_steps(timeline, rounds, request, costs).value();
    }
  }
  return to_dict(step);
}

// `cost`: seconds per byte and per message.
nb::dict predict_ring(const std::vector<TensorTuple>& tensors,
                      const std::vector<double>& ready_seconds, double backward_seconds,
                      double compute_seconds, int ranks, std::pair<double, double> link,
                      bool own_core, std::pair<double, double> cost, int per_machine,
                      std::pair<double, double> inside) {
  return to_dict(
      predict_all_reduce(timeline_of(tensors, ready_seconds, backward_seconds, compute_seconds),
                         request_of(ranks, link, own_core, per_machine, inside),
                         {.seconds_per_byte = cost.first, .seconds_per_message = cost.second})
          .value());
}

// Model, epochs, points of error above fp32, seeds.
using KnownTuple = std::tuple<std::string, int, double, int>;

std::vector<KnownTuple> known_errors(const std::string& codec) {
  std::vector<KnownTuple> all;
  for (const KnownAccuracy& known : accuracy_of(codec))
    all.emplace_back(known.model, known.epochs, known.points, known.seeds);
  return all;
}

std::vector<KnownAccuracy> to_accuracies(const std::vector<KnownTuple>& errors) {
  std::vector<KnownAccuracy> all;
  for (const auto& [model, epochs, points, seeds] : errors)
    all.push_back(
        {.codec = {}, .model = model, .epochs = epochs, .points = points, .seeds = seeds});
  return all;
}

std::optional<size_t> choose(const std::vector<std::pair<double, std::vector<KnownTuple>>>& steps,
                             double dense_seconds) {
  std::vector<CodecStep> all;
  for (const auto& [seconds, errors] : steps)
    all.push_back({.seconds = seconds, .accuracy = to_accuracies(errors)});
  return choose_codec(all, dense_seconds);
}

}  // namespace

void bind_step_plan(nb::module_& module) {
  nb::class_<CostTable>(module, "CostTable")
      .def(nb::init<>())
      .def_static(
          "from_text", [](const std::string& text) { return CostTable::from_text(text).value(); },
          nb::arg("text"))
      .def("to_text", [](const CostTable& costs) {
        const std::lock_guard lock(measuring);
        return costs.to_text();
      });
  module.def("parse_link", &rate_and_latency, nb::arg("text"));
  module.attr("WORTHWHILE") = kWorthwhile;
  module.attr("CLEAR_GAIN") = kClearGain;
  module.def("known_errors", &known_errors, nb::arg("codec"));
  module.def("wants_short_trial", &wants_short_trial, nb::arg("codec"));
  module.def(
      "keeps_accuracy",
      [](const std::vector<KnownTuple>& errors) { return keeps_accuracy(to_accuracies(errors)); },
      nb::arg("errors"));
  module.def("choose_codec", &choose, nb::arg("steps"), nb::arg("dense_seconds"));
  module.def("predict_step", &predict, nb::arg("tensors"), nb::arg("ready_seconds"),
             nb::arg("backward_seconds"), nb::arg("compute_seconds"), nb::arg("codec"),
             nb::arg("method"), nb::arg("ranks"), nb::arg("link"), nb::arg("own_core"),
             nb::arg("costs"), nb::arg("bucket_kb"), nb::arg("per_machine") = 1,
             nb::arg("inside") = std::pair(0.0, 0.0), nb::arg("sync") = "",
             nb::arg("thread_factor") = 1.0);
  module.def("predict_all_reduce", &predict_ring, nb::arg("tensors"), nb::arg("ready_seconds"),
             nb::arg("backward_seconds"), nb::arg("compute_seconds"), nb::arg("ranks"),
             nb::arg("link"), nb::arg("own_core"), nb::arg("cost"), nb::arg("per_machine") = 1,
             nb::arg("inside") = std::pair(0.0, 0.0));
}

}  // namespace thinwire::python
