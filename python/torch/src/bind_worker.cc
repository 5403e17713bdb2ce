// LocalWorker for Python.
// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/utils/pybind.h>

#include "local_worker.h"
#include "module_parts.h"

namespace py = pybind11;

namespace thinwire::python {
namespace {

using NoGil = py::gil_scoped_release;

SynchroniserOptions options_of(const py::dict& given) {
  SynchroniserOptions options;
  options.method = given["method"].cast<std::string>();
  options.codec = given["codec"].cast<std::string>();
  options.feedback = given["feedback"].cast<std::string>();
  options.exchange = given["exchange"].cast<std::string>();
  options.seed = given["seed"].cast<uint64_t>();
  options.max_skipped = given["max_skipped"].cast<int>();
  options.host = given["host"].cast<std::string>();
  return options;
}

py::dict to_dict(const RoundReport& report) {
  py::dict row;
  row["round"] = report.round;
  row["step"] = report.step;
  row["skipped"] = report.skipped;
  row["fault"] = report.skipped ? describe(report.fault) : std::string();
  row["global"] = report.global;
  row["fragment"] = report.fragment;
  row["begun"] = report.fragment < 0 ? report.step : report.begun;
  row["ranks"] = report.ranks;
  row["losses"] = report.losses;
  row["leaders"] = report.leaders;
  row["leader"] = report.leader;
  row["values"] = report.values;
  row["payload_bytes"] = report.payload_bytes;
  row["sent_bytes"] = report.sent_bytes;
  row["received_bytes"] = report.received_bytes;
  row["between_bytes"] = report.between_bytes;
  row["seconds"] = report.seconds;
  return row;
}

}  // namespace

void bind_worker(py::module_& module) {
  py::class_<LocalWorker>(module, "LocalWorker")
      .def(py::init([](const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
                       const std::vector<NamedShape>& tensors, const at::Tensor& parameters,
                       const py::dict& options, double deadline_seconds) {
             auto parsed = options_of(options);
             const NoGil released;
             return std::make_unique<LocalWorker>(processes, tensors, parameters, std::move(parsed),
                                                  deadline_seconds);
           }),
           py::arg("processes"), py::arg("tensors"), py::arg("parameters"), py::arg("options"),
           py::arg("deadline_seconds"))
      .def_property_readonly("needs_loss", &LocalWorker::needs_loss)
      .def_property_readonly("adjusts_gradient", &LocalWorker::adjusts_gradient)
      .def("adjust_gradient", &LocalWorker::adjust_gradient, py::call_guard<NoGil>())
      .def("after_step",
           [](LocalWorker& worker, const at::Tensor& parameters, double loss) -> py::object {
             std::optional<RoundReport> report;
             {
               const NoGil released;
               report = worker.after_step(parameters, loss);
             }
             return report ? py::object(to_dict(*report)) : py::none();
           })
      .def("centre", &LocalWorker::centre, py::call_guard<NoGil>())
      .def("leave", &LocalWorker::leave, py::call_guard<NoGil>())
      .def("save",
           [](const LocalWorker& worker) {
             std::vector<SavedArray> saved;
             {
               const NoGil released;  // it waits for a round that is under way
               saved = worker.save();
             }
             return to_list(saved);
           })
      .def("load", &LocalWorker::load, py::call_guard<NoGil>())
      .def("restart", &LocalWorker::restart, py::call_guard<NoGil>())
      .def("tell_all", &LocalWorker::tell_all, py::call_guard<NoGil>())
      .def_static("kind_of", &LocalWorker::kind_of)
      .def_property_readonly("rank", &LocalWorker::rank)
      .def_property_readonly("size", &LocalWorker::size);
}

}  // namespace thinwire::python
