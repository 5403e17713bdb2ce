// Launcher: runs kernels by name, wherever they run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace thinwire::device {

// How many blocks of how many threads.
struct Grid {
  uint32_t blocks = 1;
  uint32_t threads = 256;  // of a block; a multiple of 32
};

// A kernel's argument: the bytes of a number or pointer.
struct Argument {
  const void* data;
  size_t size;
};

class Launcher {
 public:
  virtual ~Launcher() = default;

  // Queues a kernel, "half_float/encode_half" for example, the name of a text and of a kernel in
  // it. Kernels of a launcher run one after another. REQUIRES: the arguments have the sizes of the
  // kernel's parameters.
  virtual void launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) = 0;
};

// The arguments by value; their types are those of the text (u64 for a count).
template <class... Values>
void launch(Launcher& launcher, std::string_view kernel, Grid grid, const Values&... values) {
  const Argument arguments[] = {{&values, sizeof values}...};
  launcher.launch(kernel, grid, arguments);
}

}  // namespace thinwire::device
