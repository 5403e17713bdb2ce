// The module thinwire.torch._engine, bound by the pybind11 that torch itself is bound by: only that
// one knows a process group when it is given one.
// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"
#include "exchange_options.h"
#include "module_parts.h"
#include "report_members.h"
#include "thinwire/c10d.h"
#include "thinwire/feedback.h"
#include "thinwire/momentum.h"
#include "thinwire/step_plan.h"
#include "thinwire/threads.h"
#include "thinwire/version.h"

namespace py = pybind11;

namespace thinwire::python {
namespace {

// As the package's own classes, which are told apart by their codes.
void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const py::object errors = py::module_::import("thinwire.errors");
    const py::object kind = errors.attr("class_of")(std::string(to_string(error.code())));
    PyErr_SetString(kind.ptr(), error.what());
  }
}

py::dict to_dict(const StreamSpec& stream, const StreamCounters& counters) {
  py::dict row;
  row["name"] = stream.name;
  each_counter(counters, [&](const char* name, auto value) { row[name] = value; });
  row["on_device"] = counters.on_device;
  row["why_staged"] = counters.why_staged;
  return row;
}

py::dict to_dict(const Engine& engine, const StepReport& report) {
  py::dict row;
  each_total(report, [&](const char* name, auto value) { row[name] = value; });
  row["outside"] = report.outside;
  row["device_to_host_bytes"] = report.device_to_host_bytes;
  row["host_to_device_bytes"] = report.host_to_device_bytes;
  row["owed"] = report.owed;
  row["fault"] = report.skipped ? describe(report.fault) : std::string();
  py::list left_out;
  for (const LeftOut& one : report.left_out)
    left_out.append(py::make_tuple(one.rank, std::string(to_string(one.why))));
  row["left_out"] = left_out;
  row["unchosen"] = report.unchosen;
  py::list streams;
  for (size_t i = 0; i < report.streams.size(); ++i)
    streams.append(to_dict(engine.streams()[i], report.streams[i]));
  row["streams"] = streams;
  return row;
}

// Of the step that `end` ends.
py::dict report_of(Engine& engine, StepReport (Engine::*end)()) {
  StepReport report;
  {
    const py::gil_scoped_release released;
    report = (engine.*end)();
  }
  return to_dict(engine, report);
}

py::dict to_dict(const Regrouped& joined) {
  py::dict row;
  row["generation"] = joined.generation;
  row["step"] = joined.step;
  row["takes_over"] = joined.takes_over;
  row["source"] = joined.source;
  row["ended"] = joined.ended.has_value() && !joined.ended->skipped;
  py::list lost;
  for (const LostRank& one : joined.lost)
    lost.append(py::make_tuple(one.generation, one.rank, one.owed, one.step));
  row["lost"] = lost;
  return row;
}

}  // namespace

py::list to_list(const std::vector<SavedArray>& saved) {
  py::list arrays;
  for (const auto& [name, type, on_resize, shape, data] : saved)
    arrays.append(py::make_tuple(name, type, on_resize, shape, py::bytes(data)));
  return arrays;
}

}  // namespace thinwire::python

PYBIND11_MODULE(_engine, module) {
  using thinwire::python::Engine;
  using NoGil = py::gil_scoped_release;
  py::register_exception_translator(thinwire::python::translate);
  module.attr("version") = THINWIRE_VERSION;
  module.attr("torch_version") = TORCH_VERSION;
  module.def("close", &thinwire::close_c10d_groups, py::call_guard<NoGil>());
  module.def("close_group", &thinwire::close_c10d_group, py::arg("processes"),
             py::call_guard<NoGil>());
  module.def("set_codec_threads", &thinwire::set_codec_threads, py::arg("count"));
  module.def("codec_threads", &thinwire::codec_threads);

  module.def("check_seal", [](const std::vector<thinwire::python::SavedArray>& saved) {
    thinwire::check_seal(thinwire::python::state_arrays(saved)).or_throw();
  });

  module.def("place_momentum", [](const py::dict& options, const std::string& place,
                                  const thinwire::python::MomentumTuple& own) {
    const auto plan = thinwire::place_momentum(place, thinwire::python::momentum_of(own),
                                               thinwire::python::exchange_options_of(options))
                          .value();
    py::list of_rules;
    for (const auto& rule : plan.rules) of_rules.append(rule.feedback);
    return py::make_tuple(plan.in_memory, plan.feedback, of_rules);
  });

  module.def("memory_owes", [](const std::string& feedback) {
    return thinwire::find_feedback(feedback).value().entry->owes;
  });

  module.def("check_options", [](const py::dict& options) {
    thinwire::check_exchange(thinwire::python::exchange_options_of(options)).or_throw();
  });

  module.def("check_momentum_acts_once", [](const py::dict& options, double own) {
    thinwire::check_momentum_acts_once(own, thinwire::python::exchange_options_of(options))
        .or_throw();
  });

  module.def("first_moment_acts", [](const py::dict& options, const std::string& place,
                                     double beta1) {
    return thinwire::first_moment_acts(place, beta1, thinwire::python::exchange_options_of(options))
        .value();
  });

  module.def("probe_link",
             [](const c10::intrusive_ptr<c10d::ProcessGroup>& processes, double seconds) {
               const NoGil released;
               const thinwire::ProbedLink link =
                   thinwire::probe_link(*thinwire::make_c10d_group(processes), seconds);
               return std::make_tuple(link.bits_per_second, link.latency_seconds, link.at_least);
             });

  thinwire::python::bind_boundary(module);
  thinwire::python::bind_gather(module);
  thinwire::python::bind_worker(module);

  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine")
      .def(py::init([](const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
                       const std::vector<thinwire::python::NamedShape>& tensors,
                       const py::dict& options, double deadline_seconds,
                       const std::optional<std::pair<int, std::vector<std::string>>>& device) {
             auto parsed = thinwire::python::exchange_options_of(options);
             const NoGil released;
             if (device) parsed.device = thinwire::make_cuda_memory(device->first, device->second);
             return std::make_shared<Engine>(processes, tensors, parsed, deadline_seconds);
           }),
           py::arg("processes"), py::arg("tensors"), py::arg("options"),
           py::arg("deadline_seconds"), py::arg("device") = py::none())
      .def_static(
          "join",
          [](const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
             const std::vector<thinwire::python::NamedShape>& tensors, const py::dict& options,
             double deadline_seconds, uint32_t generation) {
            const auto parsed = thinwire::python::exchange_options_of(options);
            const NoGil released;
            return std::make_shared<Engine>(processes, tensors, parsed, deadline_seconds,
                                            generation);
          },
          py::arg("processes"), py::arg("tensors"), py::arg("options"), py::arg("deadline_seconds"),
          py::arg("generation"))
      .def("regroup", &Engine::regroup, py::arg("processes"), py::arg("generation"),
           py::call_guard<NoGil>())
      .def("joined",
           [](const Engine& engine) { return thinwire::python::to_dict(engine.joined()); })
      .def("settle", &Engine::settle, py::arg("counts"), py::call_guard<NoGil>())
      .def("hand_over", &Engine::hand_over, py::arg("leaves"), py::call_guard<NoGil>())
      .def("agree", &Engine::agree, py::call_guard<NoGil>())
      .def("tell_all", &Engine::tell_all, py::call_guard<NoGil>())
      .def("set_momentum", &Engine::set_momentum, py::call_guard<NoGil>())
      .def("set_weighted", &Engine::set_weighted, py::call_guard<NoGil>())
      .def("set_weight", &Engine::set_weight, py::call_guard<NoGil>())
      .def("abstain", &Engine::abstain, py::call_guard<NoGil>())
      .def("skip_step", &Engine::skip_step, py::call_guard<NoGil>())
      .def("change",
           [](Engine& engine, const py::dict& options) {
             auto parsed = thinwire::python::exchange_options_of(options);
             const NoGil released;
             engine.change(std::move(parsed));
           })
      .def("options",
           [](const Engine& engine) { return thinwire::python::dict_of(engine.options()); })
      .def("start", &Engine::start, py::arg("index"), py::arg("gradient"),
           py::arg("queue") = py::none(), py::call_guard<NoGil>())
      .def("wait",
           [](Engine& engine) { return thinwire::python::report_of(engine, &Engine::wait); })
      .def("may_bypass", &Engine::may_bypass, py::call_guard<NoGil>())
      .def("start_outside", &Engine::start_outside, py::arg("index"), py::arg("gradient"),
           py::call_guard<NoGil>())
      .def("abandon_outside", &Engine::abandon_outside, py::arg("why"), py::call_guard<NoGil>())
      .def("finish_outside",
           [](Engine& engine) {
             return thinwire::python::report_of(engine, &Engine::finish_outside);
           })
      .def("save", [](const Engine& engine) { return thinwire::python::to_list(engine.save()); })
      .def("load", &Engine::load, py::call_guard<NoGil>())
      .def("decisions",
           [](const Engine& engine) {
             py::list rows;
             for (const thinwire::AutoDecision& decision : engine.decisions())
               rows.append(
                   py::make_tuple(decision.step, decision.codec, decision.others, decision.why));
             return rows;
           })
      .def("owed", &Engine::owed, py::call_guard<NoGil>())
      .def("saved_shapes", &Engine::saved_shapes)
      .def("streams",
           [](const Engine& engine) {
             py::list rows;
             for (const auto& stream : engine.streams()) {
               py::list names;
               for (const auto& tensor : stream.tensors) names.append(tensor.name);
               rows.append(py::make_tuple(stream.name, names));
             }
             return rows;
           })
      .def_property_readonly("rank", &Engine::rank)
      .def_property_readonly("size", &Engine::size)
      .def_property_readonly("column", &Engine::column);
}
