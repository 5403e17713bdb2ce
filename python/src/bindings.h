// The functions by which each file adds its part to the extension module, one per public header.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace thinwire::python {

void bind_status(nanobind::module_& module);
void bind_near_miss(nanobind::module_& module);
void bind_stream(nanobind::module_& module);
void bind_codec(nanobind::module_& module);
void bind_encoder(nanobind::module_& module);
void bind_decoder(nanobind::module_& module);
void bind_feedback(nanobind::module_& module);
void bind_frame(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_exchange(nanobind::module_& module);
void bind_threads(nanobind::module_& module);
void bind_step_plan(nanobind::module_& module);
void bind_small_checkpoint(nanobind::module_& module);

}  // namespace thinwire::python
