// Tensors of torch as the exchange sees them.
// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <limits>
#include <map>
#include <utility>

#include "thinwire/c10d.h"
#include "thinwire/status.h"

namespace thinwire::python {
namespace {

TensorView view_of(const at::Tensor& tensor, const std::string& name) {
  const auto type = tensor.scalar_type();
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() ||
      (type != at::kFloat && type != at::kBFloat16))
    throw Error(ErrorCode::kUnsupported,
                "gradient of '" + name +
                    "' is not a contiguous float32 or bfloat16 tensor of the "
                    "processor's memory");
  return {.data = tensor.mutable_data_ptr(),
          .count = static_cast<size_t>(tensor.numel()),
          .dtype = type == at::kFloat ? DType::kFloat32 : DType::kBFloat16,
          .device = Device::kCpu};
}

}  // namespace

Engine::Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
               const std::vector<NamedShape>& tensors, ExchangeOptions options,
               double deadline_seconds)
    : group_(make_c10d_group(processes)),
      store_(std::make_unique<Store>()),
      tensors_(specs_of(tensors)),
      options_(std::move(options)) {
  group_->set_deadline(std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000)));
  exchange_ = make_exchange(*group_, *store_, tensors_, options_);
}

void Engine::start(size_t index, const at::Tensor& gradient) {
  ticket_ = exchange_->start(index, view_of(gradient, tensors_.at(index).name));
  started_.push_back(gradient);
}

StepReport Engine::wait() {
  StepReport report = started_.empty() ? exchange_->finish() : exchange_->wait(ticket_);
  if (report.skipped)
    for (at::Tensor& gradient : started_) gradient.fill_(std::numeric_limits<float>::quiet_NaN());
  started_.clear();
  return report;
}

void Engine::load(const std::vector<std::vector<SavedArray>>& saved, uint64_t step) {
  begin_with(load_store(saved, *group_), step);
}

void Engine::take_over(const std::vector<SavedArray>& saved, uint64_t step) {
  std::map<std::string, std::vector<SavedArray>> encoders;
  std::vector<SavedArray> memories;
  for (const SavedArray& array : saved) {
    const std::string& name = std::get<0>(array);
    const std::string key = name.substr(0, name.rfind('/'));
    (key.ends_with("/encoder") ? encoders[key] : memories).push_back(array);
  }
  begin_with(load_store({memories}, *group_), step);
  for (const auto& [key, arrays] : encoders)
    if (store_->holds(key)) (void)store_->load({state_arrays(arrays)}, group_->rank(), size());
}

void Engine::begin_with(std::unique_ptr<Store> store, uint64_t step) {
  exchange_.reset();  // before the store that it writes to
  store_ = std::move(store);
  options_.first_step = step;
  exchange_ = make_exchange(*group_, *store_, tensors_, options_);
}

}  // namespace thinwire::python
