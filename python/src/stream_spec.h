// Tensors and streams as the package hands them over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "thinwire/stream.h"

namespace thinwire::python {

using TensorTuple = std::tuple<std::string, std::vector<uint64_t>, std::string>;  // name shape kind

// Throws Error(kUnknownName) with the known kinds, Error(kContract) for more values than any memory
// holds.
std::vector<TensorSpec> tensor_specs(const std::vector<TensorTuple>& tensors);

StreamSpec stream_spec(const std::string& name, const std::vector<TensorTuple>& tensors);

}  // namespace thinwire::python
