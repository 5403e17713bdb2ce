// Binds the compressed all-gather of shards, over a torch.distributed process group.
// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "module_parts.h"
#include "saved_store.h"
#include "thinwire/c10d.h"
#include "thinwire/shard_gather.h"

namespace py = pybind11;

namespace thinwire::python {
namespace {

std::span<float> floats_of(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.scalar_type() != at::kFloat)
    throw Error(ErrorCode::kContract,
                "gather: shards are contiguous float32 tensors of the processor's memory");
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Used by one thread at a time.
class Gather {
 public:
  Gather(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
         const std::vector<std::vector<NamedShape>>& shards, const std::string& codec,
         uint64_t seed, double deadline_seconds)
      : group_(make_c10d_group(processes)) {
    group_->set_deadline(std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000)));
    std::vector<std::vector<TensorSpec>> specs;
    for (const auto& shard : shards) specs.push_back(specs_of(shard));
    gather_ = make_shard_gather(*group_, specs, {.codec = codec, .seed = seed});
  }

  ShardGatherReport gather(uint64_t step, const at::Tensor& mine, const at::Tensor& all) {
    return gather_->gather(step, floats_of(mine), floats_of(all));
  }

 private:
  std::unique_ptr<Group> group_;
  std::unique_ptr<ShardGather> gather_;
};

}  // namespace

void bind_gather(py::module_& module) {
  using NoGil = py::gil_scoped_release;
  py::class_<Gather, std::shared_ptr<Gather>>(module, "Gather")
      .def(py::init<const c10::intrusive_ptr<c10d::ProcessGroup>&,
                    const std::vector<std::vector<NamedShape>>&, const std::string&, uint64_t,
                    double>(),
           py::arg("processes"), py::arg("shards"), py::arg("codec"), py::arg("seed"),
           py::arg("deadline_seconds"), py::call_guard<NoGil>())
      .def("gather",
           [](Gather& gather, uint64_t step, const at::Tensor& mine, const at::Tensor& all) {
             ShardGatherReport report;
             {
               const NoGil released;
               report = gather.gather(step, mine, all);
             }
             py::dict row;
             row["skipped"] = report.skipped;
             row["fault"] = report.skipped ? describe(report.fault) : std::string();
             row["payload_bytes"] = report.payload_bytes;
             row["sent_bytes"] = report.sent_bytes;
             row["received_bytes"] = report.received_bytes;
             return row;
           });
}

}  // namespace thinwire::python
