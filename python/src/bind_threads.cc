// threads.h: how many threads a call may use.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "thinwire/threads.h"

namespace thinwire::python {

void bind_threads(nanobind::module_& module) {
  module.def("set_codec_threads", &set_codec_threads, nanobind::arg("count"));
  module.def("codec_threads", &codec_threads);
}

}  // namespace thinwire::python
