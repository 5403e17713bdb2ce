// Runs kernel texts on a GPU: compiles them, once per machine, and launches them on a stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "device/launcher.h"

namespace thinwire::device {

class CudaLauncher final : public Launcher {
 public:
  // Kernels run on `stream`. NVRTC is looked for as Nvrtc says, when the first kernel of a text is launched; what it
  // compiled is kept in kernel_cache_folder(). The context outlives this.
  CudaLauncher(const CudaContext& context, CudaHandle stream,
               std::vector<std::string> nvrtc_folders = {});
  ~CudaLauncher() override;
  CudaLauncher(const CudaLauncher&) = delete;
  CudaLauncher& operator=(const CudaLauncher&) = delete;

  void launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) override;

 private:
  CudaHandle function_of(const std::string& kernel);

  const CudaContext& context_;
  CudaHandle stream_;
  std::vector<std::string> nvrtc_folders_;
  std::map<std::string, CudaHandle> modules_;    // by text
  std::map<std::string, CudaHandle> functions_;  // by kernel
};

}  // namespace thinwire::device
