// stream.h: tensors are tuples here, and dataclasses in the package.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "bindings.h"
#include "stream_spec.h"
#include "thinwire/status.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

constexpr size_t kMaxCount = size_t{1} << 48;  // four times the bytes that processors address

std::vector<std::string> tensor_kinds() {
  std::vector<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(TensorKind::kOther); ++kind)
    names.emplace_back(to_string(static_cast<TensorKind>(kind)));
  return names;
}

TensorKind parse_kind(const std::string& text) {
  std::string known;
  const auto names = tensor_kinds();
  for (size_t kind = 0; kind < names.size(); ++kind) {
    if (names[kind] == text) return static_cast<TensorKind>(kind);
    known += (known.empty() ? "" : ", ") + names[kind];
  }
  throw Error(ErrorCode::kUnknownName, "unknown tensor kind '" + text + "'; known: " + known);
}

size_t checked_count(const TensorSpec& tensor) {
  size_t count = 1;
  for (const uint64_t extent : tensor.shape)
    if (__builtin_mul_overflow(count, extent, &count) || count > kMaxCount)
      throw Error(ErrorCode::kContract,
                  "tensor '" + tensor.name + "': more values than any memory holds");
  return count;
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const std::vector<TensorTuple>& tensors) {
  std::vector<TensorSpec> specs;
  size_t count = 0;
  for (const auto& [name, shape, kind] : tensors) {
    specs.push_back({.name = name, .shape = shape, .kind = parse_kind(kind)});
    count += checked_count(specs.back());
    if (count > kMaxCount)
      throw Error(ErrorCode::kContract, "tensors: more values than any memory holds");
  }
  return specs;
}

StreamSpec stream_spec(const std::string& name, const std::vector<TensorTuple>& tensors) {
  return {.name = name, .tensors = tensor_specs(tensors)};
}

void bind_stream(nb::module_& module) {
  module.def("tensor_kinds", &tensor_kinds);
  module.def(
      "check_tensors", [](const std::vector<TensorTuple>& tensors) { tensor_specs(tensors); },
      nb::arg("tensors"));
}

}  // namespace thinwire::python
