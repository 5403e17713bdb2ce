// The parts of the module thinwire.torch._engine, one for each thing it offers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "saved_store.h"

namespace thinwire::python {

void bind_boundary(pybind11::module_& module);
void bind_gather(pybind11::module_& module);
void bind_worker(pybind11::module_& module);

// (name, type, on_resize, shape, bytes) of each array.
pybind11::list to_list(const std::vector<SavedArray>& arrays);

}  // namespace thinwire::python
