// dlopen, with errors that say what is missing.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/shared_library.h"

#include <dlfcn.h>

#include "thinwire/status.h"

namespace thinwire::device {

SharedLibrary::SharedLibrary(std::string what, const std::vector<std::string>& candidates)
    : what_(std::move(what)) {
  std::string tried;
  for (const std::string& candidate : candidates) {
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = candidate;
      return;
    }
    const char* why = dlerror();
    tried += "\n  " + std::string(why != nullptr ? why : candidate.c_str());
  }
  throw Error(ErrorCode::kUnsupported, "device: there is no " + what_ + "; tried:" + tried);
}

void* SharedLibrary::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr)
    throw Error(ErrorCode::kUnsupported, "device: " + what_ + " (" + path_ + ") has no function " +
                                             name + "; it is too old");
  return found;
}

}  // namespace thinwire::device
