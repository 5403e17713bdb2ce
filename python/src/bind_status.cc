// status.h: an Error arrives in Python as the class of thinwire.errors that carries its code.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <vector>

#include "bindings.h"
#include "thinwire/status.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

// Codes are contiguous from kOk on, and words without a code are "unknown".
std::vector<std::string> error_codes() {
  std::vector<std::string> words;
  for (int code = 1; code < 256; ++code) {
    const std::string word(to_string(static_cast<ErrorCode>(code)));
    if (word == "unknown") break;
    words.push_back(word);
  }
  return words;
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    // thinwire.errors is pure Python; a code that it does not know yet becomes its base class.
    const std::string word(to_string(error.code()));
    const nb::object type = nb::module_::import_("thinwire.errors").attr("class_of")(word);
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void bind_status(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("error_codes", &error_codes);
}

}  // namespace thinwire::python
