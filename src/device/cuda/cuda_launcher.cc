// Arguments are given by their addresses.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_launcher.h"

#include <string>
#include <utility>
#include <vector>

namespace thinwire::device {

CudaLauncher::CudaLauncher(std::shared_ptr<CudaModules> modules, CudaHandle stream)
    : modules_(std::move(modules)), stream_(stream) {}

void CudaLauncher::launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) {
  const CudaContext& context = modules_->context();
  const CudaContext::Current current(context);
  const std::string name(kernel);
  const CudaHandle function = modules_->function(name);
  std::vector<void*> list;
  for (const Argument& argument : arguments) list.push_back(const_cast<void*>(argument.data));
  const CudaCode code = context.driver().launch(function, grid.blocks, 1, 1, grid.threads, 1, 1, 0,
                                                stream_, list.data(), nullptr);
  if (code != 0) context.check(code, "launching " + name);
}

}  // namespace thinwire::device
