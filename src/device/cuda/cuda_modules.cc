// Compiles texts, or finds them compiled, and loads them.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_modules.h"

#include <algorithm>
#include <utility>

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

CudaModules::CudaModules(std::shared_ptr<const CudaContext> context,
                         std::vector<std::string> nvrtc_folders)
    : context_(std::move(context)), nvrtc_folders_(std::move(nvrtc_folders)) {}

CudaModules::~CudaModules() {
  context_->release([this](const CudaDriver& driver) {
    for (const auto& [text, module] : modules_) driver.module_unload(module);
  });
}

void CudaModules::look_in(const std::vector<std::string>& folders) {
  const std::lock_guard lock(mutex_);
  for (const std::string& folder : folders)
    if (std::find(nvrtc_folders_.begin(), nvrtc_folders_.end(), folder) == nvrtc_folders_.end())
      nvrtc_folders_.push_back(folder);
}

std::vector<std::string> CudaModules::nvrtc_folders() const {
  const std::lock_guard lock(mutex_);
  return nvrtc_folders_;
}

CudaHandle CudaModules::function(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  const auto known = functions_.find(kernel);
  if (known != functions_.end()) return known->second;
  const size_t slash = kernel.find('/');
  THINWIRE_CHECK(slash != std::string::npos, "device: kernel '" + kernel + "' has no text");
  const std::string text = kernel.substr(0, slash);
  if (!modules_.contains(text)) {
    const std::string code = machine_code(text, context_->architecture(), nvrtc_folders_);
    CudaHandle module = nullptr;
    context_->check(context_->driver().module_load(&module, code.data()),
                    "loading kernels of " + text);
    modules_[text] = module;
  }
  CudaHandle function = nullptr;
  context_->check(
      context_->driver().module_function(&function, modules_[text], kernel.c_str() + slash + 1),
      "finding kernel " + kernel);
  return functions_[kernel] = function;
}

}  // namespace thinwire::device
