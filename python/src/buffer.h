// Memory of Python objects as spans, and Python bytes made from spans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "thinwire/status.h"

namespace thinwire::python {

namespace nb = nanobind;

// Holds an object's memory in place. Made and destroyed with the GIL, usable without. The object
// must have one contiguous stretch of memory; NumPy arrays, bytes, bytearrays and memoryviews do.
class Buffer {
 public:
  enum Access : uint8_t { kRead, kWrite };

  Buffer(nb::handle object, Access access) {
    const int flags = access == kWrite ? PyBUF_CONTIG : PyBUF_CONTIG_RO;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) nb::raise_python_error();
  }
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), size()};
  }
  std::span<std::byte> writable_bytes() const noexcept {
    return {static_cast<std::byte*>(view_.buf), size()};
  }
  // The package has checked the type of the items; what would be undefined is checked here too.
  std::span<const float> floats() const { return writable_floats(); }
  std::span<float> writable_floats() const {
    if (size() % sizeof(float) != 0 || reinterpret_cast<uintptr_t>(view_.buf) % alignof(float) != 0)
      throw Error(ErrorCode::kContract, "buffer: not an aligned array of float32");
    return {static_cast<float*>(view_.buf), size() / sizeof(float)};
  }

 private:
  size_t size() const noexcept { return static_cast<size_t>(view_.len); }

  Py_buffer view_{};
};

inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

// Bytes that `fill(span of capacity bytes)` writes without the GIL; it returns how many it used.
// Untouched memory past them costs address space only.
template <typename Fill>
nb::bytes make_bytes(size_t capacity, Fill&& fill) {
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(capacity));
  if (made == nullptr) nb::raise_python_error();
  nb::object owner = nb::steal(made);
  size_t used = 0;
  {
    const std::span out(reinterpret_cast<std::byte*>(PyBytes_AsString(made)), capacity);
    const nb::gil_scoped_release released;
    used = fill(out);
  }
  made = owner.release().ptr();
  if (_PyBytes_Resize(&made, static_cast<Py_ssize_t>(used)) != 0) nb::raise_python_error();
  return nb::steal<nb::bytes>(made);
}

}  // namespace thinwire::python
