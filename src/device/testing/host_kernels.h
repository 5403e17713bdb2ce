// Kernel texts compiled as ordinary C++, for tests on machines without a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/launcher.h"

namespace thinwire::device {

// Runs kernels at once, on this thread. Throws Error(kUnknownName) for a kernel that is none, and
// Error(kContract) where the arguments are not the kernel's.
class HostLauncher final : public Launcher {
 public:
  // `backward`: the last block and thread first (host_threads.h). `reach` makes an address that the
  // processor can follow of each that kernels are given; null: they are such.
  explicit HostLauncher(bool backward = false, void* (*reach)(void*) = nullptr)
      : backward_(backward), reach_(reach) {}

  void launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) override;

 private:
  bool backward_;
  void* (*reach_)(void*);
};

// All kernels: "half_float/encode_half", ...
std::vector<std::string> host_kernel_names();

}  // namespace thinwire::device
