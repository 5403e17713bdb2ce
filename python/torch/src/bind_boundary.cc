// Ends of pipeline boundaries, and messages of any length between ranks, for Python.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <vector>

#include "module_parts.h"
#include "saved_store.h"
#include "thinwire/boundary.h"
#include "thinwire/c10d.h"
#include "thinwire/message_wire.h"
#include "thinwire/status.h"

namespace py = pybind11;

namespace thinwire::python {
namespace {

using NoGil = py::gil_scoped_release;

// Shared by the four ends of a cut that stand in one process; for Python, which wants a whole type.
struct Positions {
  std::shared_ptr<KeptPositions> shared = make_kept_positions();
};

// step, micro-batch, ids, batch
using VisitRow = std::tuple<uint64_t, size_t, std::vector<uint64_t>, uint64_t>;

Visit visit_of(const VisitRow& row) {
  const auto& [step, micro_batch, ids, batch] = row;
  return {.step = step, .micro_batch = micro_batch, .ids = ids, .batch = batch};
}

std::span<float> values_of(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.scalar_type() != at::kFloat)
    throw Error(ErrorCode::kUnsupported,
                "boundary: not a contiguous float32 tensor in the processor's memory");
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.scalar_type() != at::kByte)
    throw Error(ErrorCode::kUnsupported, "boundary: a message is a contiguous uint8 tensor");
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<size_t>(tensor.numel())};
}

BoundarySpec spec_of(const py::dict& given, const Positions* note, const Positions* at) {
  BoundarySpec spec;
  spec.name = given["name"].cast<std::string>();
  spec.sample_shape = given["sample_shape"].cast<std::vector<uint64_t>>();
  spec.samples = given["samples"].cast<size_t>();
  spec.micro_batches = given["micro_batches"].cast<size_t>();
  spec.codec = given["codec"].cast<std::string>();
  spec.per_sample = given["per_sample"].cast<bool>();
  spec.memory = given["memory"].cast<std::string>();
  spec.seed = given["seed"].cast<uint64_t>();
  spec.steps_per_epoch = given["steps_per_epoch"].cast<uint64_t>();
  spec.stream = given["stream"].cast<uint32_t>();
  spec.first_step = given["first_step"].cast<uint64_t>();
  spec.sender = given["sender"].cast<uint16_t>();
  spec.cache_budget = given["cache_budget"].cast<size_t>();
  spec.spill_folder = given["spill_folder"].cast<std::string>();
  if (note != nullptr) spec.note_positions = note->shared;
  if (at != nullptr) spec.at_positions = at->shared;
  return spec;
}

// The message, samples that went in full, and whether all values were finite.
std::tuple<at::Tensor, size_t, bool> encode(BoundarySender& sender, const at::Tensor& values,
                                            const VisitRow& visit) {
  at::Tensor message =
      at::empty({static_cast<int64_t>(sender.max_message_size())}, at::TensorOptions(at::kByte));
  const Sent sent = sender.encode(values_of(values), visit_of(visit), bytes_of(message));
  return {message.narrow(0, 0, static_cast<int64_t>(sent.size)), sent.full, sent.finite};
}

// False where the sender's values were not finite. Throws what is wrong with the message.
bool decode(BoundaryReceiver& receiver, const at::Tensor& message, const VisitRow& visit,
            const at::Tensor& values) {
  const Status status = receiver.decode(bytes_of(message), visit_of(visit), values_of(values));
  if (status.code() == ErrorCode::kNonFinite) return false;
  status.or_throw();
  return true;
}

// Of a message: generation, step, turn.
using OrderRow = std::tuple<uint64_t, uint64_t, uint64_t>;

MessageOrder order_of(const OrderRow& row) {
  const auto& [generation, step, turn] = row;
  return {.generation = generation, .step = step, .turn = turn};
}

std::unique_ptr<MessageWire> make_wire(const c10::intrusive_ptr<c10d::ProcessGroup>& processes) {
  return std::make_unique<MessageWire>(make_c10d_group(processes));
}

// The group copies what it sends.
void send(MessageWire& wire, const at::Tensor& message, uint64_t note, int to, int tag,
          const OrderRow& order) {
  wire.send(bytes_of(message), note, order_of(order), to, tag);
}

// The message, its note and its generation.
std::tuple<at::Tensor, uint64_t, uint64_t> receive(MessageWire& wire, size_t limit, int from,
                                                   int tag, double deadline_seconds,
                                                   const OrderRow& expected) {
  WireMessage got =
      wire.receive(limit, from, tag, order_of(expected),
                   std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000)));
  std::byte* const bytes = got.bytes.release();
  const at::Tensor message = at::from_blob(
      bytes, {static_cast<int64_t>(got.size)},
      [](void* memory) { delete[] static_cast<std::byte*>(memory); }, at::TensorOptions(at::kByte));
  return {message, got.note, got.order.generation};
}

template <typename End, typename Class>
void bind_end(Class& bound) {
  bound.def("commit", &End::commit)
      .def("rollback", &End::rollback)
      .def("invalidate", &End::invalidate)
      .def("save",
           [](const End& end) {
             StateArrays arrays = end.save();
             seal_state(arrays);
             return to_list(saved_arrays(arrays));
           })
      .def("load", [](End& end, const std::vector<SavedArray>& saved) {
        const StateArrays arrays = state_arrays(saved);
        check_seal(arrays).or_throw();
        end.load(arrays).or_throw();
      });
}

}  // namespace

void bind_boundary(py::module_& module) {
  py::class_<Positions>(module, "KeptPositions").def(py::init<>());

  py::class_<BoundarySender> sender(module, "BoundarySender");
  sender
      .def(py::init([](const py::dict& spec, const Positions* note, const Positions* at) {
        return make_boundary_sender(spec_of(spec, note, at)).value();
      }))
      .def_property_readonly("max_message_size", &BoundarySender::max_message_size)
      .def("encode", &encode, py::call_guard<NoGil>());
  bind_end<BoundarySender>(sender);

  py::class_<BoundaryReceiver> receiver(module, "BoundaryReceiver");
  receiver
      .def(py::init([](const py::dict& spec, const Positions* note, const Positions* at) {
        return make_boundary_receiver(spec_of(spec, note, at)).value();
      }))
      .def("decode", &decode, py::call_guard<NoGil>());
  bind_end<BoundaryReceiver>(receiver);

  py::class_<MessageWire>(module, "Wire")
      .def(py::init(&make_wire), py::call_guard<NoGil>())
      .def("send", &send, py::arg("message"), py::arg("note"), py::arg("to"), py::arg("tag"),
           py::arg("order") = OrderRow{}, py::call_guard<NoGil>())
      .def("receive", &receive, py::arg("limit"), py::arg("source"), py::arg("tag"),
           py::arg("deadline_seconds"), py::arg("order") = OrderRow{}, py::call_guard<NoGil>())
      .def_property_readonly("rank", &MessageWire::rank);
}

}  // namespace thinwire::python
