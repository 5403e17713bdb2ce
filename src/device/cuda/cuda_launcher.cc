// A module per text, loaded when its first kernel is launched.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_launcher.h"

#include "core/check.h"
#include "device/cuda/kernel_cache.h"
#include "device/cuda/nvrtc.h"
#include "device/kernel_texts.h"

namespace thinwire::device {
namespace {

// The compiler's version is part of the key, so that NVRTC is there even if nothing is compiled.
std::string machine_code(const std::string& text, const std::string& architecture,
                         const std::vector<std::string>& nvrtc_folders) {
  const Nvrtc nvrtc(nvrtc_folders);
  const std::string source = source_for_gpu(text);
  std::string options;
  for (const std::string& option : Nvrtc::options()) options += option + " ";
  return cached_kernel(kernel_cache_folder(),
                       {.name = text,
                        .source = source,
                        .options = options,
                        .compiler = nvrtc.version(),
                        .architecture = architecture},
                       [&] { return nvrtc.compile(text, source, architecture).cubin; });
}

}  // namespace

CudaLauncher::CudaLauncher(const CudaContext& context, CudaHandle stream,
                           std::vector<std::string> nvrtc_folders)
    : context_(context), stream_(stream), nvrtc_folders_(std::move(nvrtc_folders)) {}

CudaLauncher::~CudaLauncher() {
  for (const auto& [text, module] : modules_) context_.driver().module_unload(module);
}

CudaHandle CudaLauncher::function_of(const std::string& kernel) {
  const auto known = functions_.find(kernel);
  if (known != functions_.end()) return known->second;
  const size_t slash = kernel.find('/');
  THINWIRE_CHECK(slash != std::string::npos, "device: kernel '" + kernel + "' has no text");
  const std::string text = kernel.substr(0, slash);
  if (!modules_.contains(text)) {
    const std::string code = machine_code(text, context_.architecture(), nvrtc_folders_);
    CudaHandle module = nullptr;
    context_.driver().check(context_.driver().module_load(&module, code.data()),
                            ("loading kernels of " + text).c_str());
    modules_[text] = module;
  }
  CudaHandle function = nullptr;
  context_.driver().check(
      context_.driver().module_function(&function, modules_[text], kernel.c_str() + slash + 1),
      ("finding kernel " + kernel).c_str());
  return functions_[kernel] = function;
}

void CudaLauncher::launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) {
  const CudaContext::Current current(context_);
  const CudaHandle function = function_of(std::string(kernel));
  std::vector<void*> list;
  for (const Argument& argument : arguments) list.push_back(const_cast<void*>(argument.data));
  context_.driver().check(context_.driver().launch(function, grid.blocks, 1, 1, grid.threads, 1, 1,
                                                   0, stream_, list.data(), nullptr),
                          ("launching " + std::string(kernel)).c_str());
}

}  // namespace thinwire::device
