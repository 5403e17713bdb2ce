// Engine: gives torch's tensors to the exchange.
// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <limits>
#include <span>
#include <utility>

#include "thinwire/auto_codec.h"
#include "thinwire/c10d.h"
#include "thinwire/status.h"

namespace thinwire::python {
namespace {

constexpr double kLargestHalf = 65504;
constexpr size_t kNamed = 4;  // tensors in an error

// Of float32 or bfloat16.
TensorView view_of(const at::Tensor& tensor, std::optional<uint64_t> queue) {
  return {.data = tensor.mutable_data_ptr(),
          .count = static_cast<size_t>(tensor.numel()),
          .dtype = tensor.scalar_type() == at::kFloat ? DType::kFloat32 : DType::kBFloat16,
          .device = queue ? Device::kCuda : Device::kCpu,
          .queue = queue ? reinterpret_cast<DeviceQueue>(*queue) : nullptr};
}

}  // namespace

Engine::Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
               const std::vector<NamedShape>& tensors, const ExchangeOptions& options,
               double deadline_seconds)
    : deadline_(static_cast<int64_t>(deadline_seconds * 1000)),
      group_(make_c10d_group(processes)),
      store_(std::make_unique<Store>()),
      tensors_(specs_of(tensors)),
      columns_(options.columns) {
  group_->set_deadline(deadline_);
  exchange_.begin(make_auto_exchange(*group_, *store_, tensors_, options));
}

Engine::Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
               const std::vector<NamedShape>& tensors, const ExchangeOptions& options,
               double deadline_seconds, uint32_t generation)
    : deadline_(static_cast<int64_t>(deadline_seconds * 1000)),
      group_(make_c10d_group(processes)),
      store_(std::make_unique<Store>()),
      tensors_(specs_of(tensors)),
      columns_(1) {
  group_->set_deadline(deadline_);
  ExchangeOptions with_generation = options;
  with_generation.generation = generation;
  exchange_.begin(join_exchange(*group_, *store_, tensors_, with_generation, &joined_));
  next_step_ = joined_.step;
}

// The old group goes once the exchange has left it.
void Engine::regroup(const c10::intrusive_ptr<c10d::ProcessGroup>& processes, uint32_t generation) {
  std::unique_ptr<Group> next = make_c10d_group(processes);
  next->set_deadline(deadline_);
  joined_ = exchange_->regroup(*next, generation);
  group_ = std::move(next);
  if (joined_.ended) give_back(*joined_.ended);
  started_.clear();
  next_step_ = joined_.step;
}

void Engine::set_momentum(const std::vector<MomentumTuple>& of_tensors) {
  std::vector<Momentum> momenta;
  for (const MomentumTuple& one : of_tensors) momenta.push_back(momentum_of(one));
  exchange_->set_momentum(momenta);
}

void Engine::change(ExchangeOptions asked) {
  asked.weighted = exchange_->options().weighted;  // which set_weighted changes
  asked.device = exchange_->options().device;
  exchange_->change(asked);
}

void Engine::start(size_t index, const at::Tensor& gradient, std::optional<uint64_t> queue) {
  const auto type = gradient.scalar_type();
  if ((!queue && !gradient.device().is_cpu()) || !gradient.is_contiguous() ||
      (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf))
    throw Error(ErrorCode::kUnsupported,
                "gradient of '" + tensors_.at(index).name +
                    "' is not a contiguous float32, bfloat16 or float16 tensor of the "
                    "processor's memory, or of a GPU's with a stream");
  const at::Tensor values = type == at::kHalf ? gradient.to(at::kFloat) : gradient;
  ticket_ = exchange_->start(index, view_of(values, queue));
  started_.push_back({.index = index, .gradient = gradient, .values = values});
}

StepReport Engine::wait() {
  require_all();
  const StepReport report = exchange_->wait(ticket_);
  end_step(report);
  return report;
}

void Engine::end_step(const StepReport& report) {
  give_back(report);
  started_.clear();
  next_step_ = report.step + 1;
}

bool Engine::may_bypass() {
  Bypass* const bypass = exchange_->bypass();
  return bypass != nullptr && bypass->may_bypass();
}

void Engine::start_outside(size_t index, const at::Tensor& gradient) {
  exchange_->bypass()->start_outside(
      index, std::span(gradient.mutable_data_ptr<float>(), static_cast<size_t>(gradient.numel())));
  started_.push_back({.index = index, .gradient = gradient, .values = gradient});
}

StepReport Engine::finish_outside() {
  const StepReport report = exchange_->bypass()->finish_outside();
  end_step(report);
  return report;
}

void Engine::give_back(const StepReport& report) {
  for (Started& one : started_) {
    if (report.skipped && report.fault.code != ErrorCode::kOk)
      one.gradient.fill_(std::numeric_limits<float>::quiet_NaN());
    else if (!one.values.is_same(one.gradient))
      // What a memory adds may lie beyond the largest float16, which is better than infinity.
      one.gradient.copy_(one.values.clamp_(-kLargestHalf, kLargestHalf));
  }
}

// The exchange would wait for them for ever.
void Engine::require_all() const {
  if (started_.size() == tensors_.size()) return;
  std::vector<bool> came(tensors_.size());
  for (const Started& one : started_) came[one.index] = true;
  std::string names;
  size_t missing = 0;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!came[i] && missing++ < kNamed)
      names += (names.empty() ? "'" : ", '") + tensors_[i].name + "'";
  if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " more";
  throw Error(ErrorCode::kContract, "exchange: the step ends without the gradients of " + names);
}

std::vector<std::pair<std::string, std::vector<uint64_t>>> Engine::saved_shapes() const {
  std::vector<std::pair<std::string, std::vector<uint64_t>>> shapes;
  for (const StateArray& array : store_->save()) shapes.emplace_back(array.name, array.shape);
  return shapes;
}

void Engine::load(const std::vector<std::vector<SavedArray>>& saved, uint64_t step) {
  ExchangeOptions options = exchange_->options();
  std::unique_ptr<Store> store = load_store(saved, *group_, options.inside, columns_);
  const auto make = [&](Store& with, uint64_t first_step) {
    options.first_step = first_step;
    return make_auto_exchange(*group_, with, tensors_, options);
  };
  exchange_.renew([&] { return make(*store, step); }, [&] { return make(*store_, next_step_); });
  store_ = std::move(store);
  next_step_ = step;
}

}  // namespace thinwire::python
