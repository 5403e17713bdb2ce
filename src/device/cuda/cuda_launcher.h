// Runs kernel texts on a GPU: launches them on a stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "device/cuda/cuda_modules.h"
#include "device/cuda/driver.h"
#include "device/launcher.h"

namespace thinwire::device {

class CudaLauncher final : public Launcher {
 public:
  // Kernels run on `stream`, of the context of `modules`.
  CudaLauncher(std::shared_ptr<CudaModules> modules, CudaHandle stream);

  void launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) override;

 private:
  const std::shared_ptr<CudaModules> modules_;
  const CudaHandle stream_;
};

}  // namespace thinwire::device
