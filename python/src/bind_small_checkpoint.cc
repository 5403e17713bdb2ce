// small_checkpoint.h: files of a chain as arrays.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/pair.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "state_list.h"
#include "thinwire/small_checkpoint.h"

namespace nb = nanobind;

namespace thinwire::python {

void bind_small_checkpoint(nb::module_& module) {
  module.def(
      "expand_small_model",
      [](const std::vector<std::pair<std::string, nb::bytes>>& given) {
        std::vector<SmallFileBytes> files;
        for (const auto& [name, bytes] : given)
          files.push_back({name, std::as_bytes(std::span(bytes.c_str(), bytes.size()))});
        StateArrays arrays;
        {
          const nb::gil_scoped_release released;
          arrays = expand_small_model(files).value();
        }
        return to_list(arrays);
      },
      nb::arg("files"));
  module.def(
      "file_checksum",
      [](const nb::bytes& content) {
        const auto bytes = std::as_bytes(std::span(content.c_str(), content.size()));
        const nb::gil_scoped_release released;
        return file_checksum(bytes);
      },
      nb::arg("content"));
}

}  // namespace thinwire::python
