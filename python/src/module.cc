// The extension module thinwire._core: the C++ library with spans as buffers. What users see is the
// Python package around it, which checks arrays and has the documentation.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "thinwire/version.h"

NB_MODULE(_core, module) {
  using namespace thinwire::python;
  module.doc() = "thinwire's C++ library, for the package thinwire only.";
  module.attr("VERSION") = THINWIRE_VERSION;
  bind_status(module);
  bind_near_miss(module);
  bind_stream(module);
  bind_codec(module);
  bind_encoder(module);
  bind_decoder(module);
  bind_feedback(module);
  bind_frame(module);
  bind_store(module);
  bind_exchange(module);
  bind_threads(module);
  bind_step_plan(module);
  bind_small_checkpoint(module);
}
