// CudaModules: the kernels of a context, compiled once per machine and loaded once for all
// launchers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace thinwire::device {

// A module per text, loaded when its first kernel is asked for. May be used by several threads: one
// that asks while another compiles waits for it.
class CudaModules {
 public:
  // NVRTC is looked for as Nvrtc says. What it compiled is kept in kernel_cache_folder().
  explicit CudaModules(std::shared_ptr<const CudaContext> context,
                       std::vector<std::string> nvrtc_folders = {});
  ~CudaModules();
  CudaModules(const CudaModules&) = delete;
  CudaModules& operator=(const CudaModules&) = delete;

  // NVRTC may be in these folders, too.
  void look_in(const std::vector<std::string>& folders);
  std::vector<std::string> nvrtc_folders() const;

  // "half_float/encode_half". REQUIRES: the context is current.
  CudaHandle function(const std::string& kernel);

  const CudaContext& context() const noexcept { return *context_; }

 private:
  const std::shared_ptr<const CudaContext> context_;
  mutable std::mutex mutex_;
  std::vector<std::string> nvrtc_folders_;
  std::map<std::string, CudaHandle> modules_;    // by text
  std::map<std::string, CudaHandle> functions_;  // by kernel
};

}  // namespace thinwire::device
