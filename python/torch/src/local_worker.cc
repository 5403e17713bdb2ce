// LocalWorker: gives torch's vectors to a synchroniser.
// SPDX-License-Identifier: Apache-2.0
#include "local_worker.h"

#include <span>
#include <utility>

#include "thinwire/agreement.h"
#include "thinwire/c10d.h"
#include "thinwire/status.h"

namespace thinwire::python {
namespace {

std::span<float> values_of(const at::Tensor& vector) {
  if (!vector.device().is_cpu() || !vector.is_contiguous() || vector.scalar_type() != at::kFloat)
    throw Error(ErrorCode::kUnsupported,
                "parameters are not a contiguous float32 vector in the processor's memory");
  return {vector.mutable_data_ptr<float>(), static_cast<size_t>(vector.numel())};
}

}  // namespace

LocalWorker::LocalWorker(const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
                         const std::vector<NamedShape>& tensors, const at::Tensor& parameters,
                         SynchroniserOptions options, double deadline_seconds)
    : group_(make_c10d_group(processes)),
      store_(std::make_unique<Store>()),
      tensors_(specs_of(tensors)),
      options_(std::move(options)) {
  group_->set_deadline(std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000)));
  const std::span<float> start = values_of(parameters);
  require_agreement(*group_, "parameters", "values " + std::to_string(start.size()));
  group_->broadcast(std::as_writable_bytes(start), 0);
  sync_.begin(make_synchroniser(*group_, *store_, tensors_, start, options_));
}

void LocalWorker::adjust_gradient(const at::Tensor& parameters, const at::Tensor& gradients) {
  sync_->adjust_gradient(values_of(parameters), values_of(gradients));
}

std::optional<RoundReport> LocalWorker::after_step(const at::Tensor& parameters, double loss) {
  return sync_->after_step(values_of(parameters), loss);
}

void LocalWorker::centre(const at::Tensor& parameters, const at::Tensor& out) {
  sync_->centre(values_of(parameters), values_of(out));
}

void LocalWorker::load(const std::vector<std::vector<SavedArray>>& saved) {
  // The store knows better than any start, which must be alike on all ranks.
  begin_with(load_store(saved, *group_), zeros());
}

std::string LocalWorker::kind_of(const std::string& method, const std::string& codec) {
  std::string text = std::string(find_synchroniser(method).value().entry->name) + " of";
  std::string_view last;
  const std::vector<NamedCodec> codecs = std::move(scheduled_codecs(codec)).value();
  for (const NamedCodec& named : codecs) {
    if (named.codec->info().name == last) continue;
    last = named.codec->info().name;
    (text += ' ') += last;
  }
  return text;
}

void LocalWorker::restart(const at::Tensor& parameters) {
  const std::span<float> start = values_of(parameters);
  group_->broadcast(std::as_writable_bytes(start), 0);
  begin_with(std::make_unique<Store>(), start);
}

void LocalWorker::begin_with(std::unique_ptr<Store> store, std::span<const float> start) {
  // Rounds on their way would be lost, and this synchroniser may be made again.
  store_->await_owners();
  const auto make = [&](Store& with, std::span<const float> values) {
    return make_synchroniser(*group_, with, tensors_, values, options_);
  };
  sync_.renew([&] { return make(*store, start); }, [&] { return make(*store_, zeros()); });
  store_ = std::move(store);
}

std::vector<float> LocalWorker::zeros() const {
  size_t count = 0;
  for (const TensorSpec& tensor : tensors_) count += tensor.count();
  return std::vector<float>(count);
}

}  // namespace thinwire::python
