// Converts between libtorch's tensors and saved arrays.
// SPDX-License-Identifier: Apache-2.0
#include "train/named_tensors.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/checksum.h"
#include "train/describe.h"
#include "train/manifest.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

std::vector<NamedTensor> collect(const torch::OrderedDict<std::string, torch::Tensor>& from) {
  std::vector<NamedTensor> out;
  for (const auto& item : from)
    if (item.value().defined()) out.push_back({item.key(), item.value().detach()});
  return out;
}

std::optional<StateType> state_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return StateType::kFloat32;
    case torch::kFloat64:
      return StateType::kFloat64;
    case torch::kInt64:
      return StateType::kInt64;
    case torch::kUInt8:
    case torch::kBool:
      return StateType::kUint8;
    default:
      return std::nullopt;
  }
}

// On the processor; bfloat16 as float32, which holds it exactly.
NamedTensor widened(const NamedTensor& given) {
  NamedTensor tensor = on_processor(given);
  if (tensor.tensor.scalar_type() == torch::kBFloat16)
    tensor.tensor = tensor.tensor.to(torch::kFloat32);
  return tensor;
}

// Where `worked_on` is a copy of it.
void take_back(const NamedTensor& worked_on, const NamedTensor& given) {
  if (!worked_on.tensor.is_alias_of(given.tensor)) given.tensor.copy_(worked_on.tensor);
}

}  // namespace

std::vector<NamedTensor> trained_weights(const torch::nn::Module& module) {
  std::vector<NamedTensor> out;
  for (const TrainableParameter& parameter : trainable_parameters(module))
    out.push_back({parameter.spec.name, parameter.tensor.detach()});
  return out;
}

std::vector<NamedTensor> named_buffers(const torch::nn::Module& module) {
  return collect(module.named_buffers());
}

std::vector<NamedTensor> named_weights(const torch::nn::Module& module) {
  auto out = collect(module.named_parameters());
  for (NamedTensor& buffer : named_buffers(module)) out.push_back(std::move(buffer));
  return out;
}

NamedTensor on_processor(const NamedTensor& tensor) {
  if (tensor.tensor.layout() != torch::kStrided)
    throw Error(ErrorCode::kUnsupported, "tensor '" + tensor.name + "' is sparse");
  return {tensor.name, moved(tensor.tensor, torch::kCPU)};
}

std::span<std::byte> bytes_of(const NamedTensor& tensor) {
  const torch::Tensor& t = tensor.tensor;
  if (!t.device().is_cpu() || t.layout() != torch::kStrided || !t.is_contiguous())
    throw Error(ErrorCode::kUnsupported,
                "tensor '" + tensor.name + "' is not a contiguous tensor on the CPU");
  return {static_cast<std::byte*>(t.mutable_data_ptr()), t.nbytes()};
}

void broadcast_tensor(Group& group, const NamedTensor& tensor, int root) {
  const torch::NoGradGuard no_grad;
  const NamedTensor here = on_processor(tensor);
  group.broadcast(bytes_of(here), root);
  if (group.rank() != root) take_back(here, tensor);
}

uint64_t checksum_of(const std::vector<NamedTensor>& tensors) {
  uint64_t sum = 0;
  for (const NamedTensor& tensor : tensors) {
    const uint64_t link[] = {sum, checksum(std::as_bytes(std::span(tensor.name)))};
    sum = checksum(std::as_bytes(std::span(link)), bytes_of(on_processor(tensor)));
  }
  return sum;
}

std::string checksum_lines(const std::vector<NamedTensor>& tensors) {
  std::string lines;
  for (const NamedTensor& tensor : tensors)
    lines += tensor.name + " " + hex(checksum_of({tensor})) + "\n";
  return lines;
}

StateArray to_state(const NamedTensor& given, OnResize on_resize) {
  const NamedTensor tensor = widened(given);
  const auto type = state_type(tensor.tensor.scalar_type());
  if (!type)
    throw Error(ErrorCode::kUnsupported,
                "tensor '" + tensor.name + "' has a type that cannot be saved");
  const auto bytes = bytes_of(tensor);
  const auto sizes = tensor.tensor.sizes();
  return {.name = tensor.name,
          .type = *type,
          .shape = {sizes.begin(), sizes.end()},
          .on_resize = on_resize,
          .data = {bytes.begin(), bytes.end()}};
}

Status from_state(const StateArrays& arrays, const NamedTensor& given) {
  const NamedTensor tensor = widened(given);
  const auto fail = [&](const std::string& why) {
    return Status::fail(ErrorCode::kMismatch, "tensor '" + tensor.name + "' " + why);
  };
  const StateArray* found = find_state(arrays, tensor.name);
  if (found == nullptr) return fail("is missing");
  if (state_type(tensor.tensor.scalar_type()) != found->type) return fail("has another type");
  const auto sizes = tensor.tensor.sizes();
  const auto bytes = bytes_of(tensor);
  if (!std::equal(sizes.begin(), sizes.end(), found->shape.begin(), found->shape.end(),
                  [](int64_t a, uint64_t b) { return static_cast<uint64_t>(a) == b; }) ||
      bytes.size() != found->data.size())
    return fail("has another shape");
  if (!bytes.empty()) std::memcpy(bytes.data(), found->data.data(), bytes.size());
  take_back(tensor, given);
  return Status::ok();
}

}  // namespace thinwire
