// Libraries that are looked for at run time: programs need neither them nor their headers to be
// built and to start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace thinwire::device {

// A library that was loaded; it stays for as long as the process lives.
class SharedLibrary {
 public:
  // Loads the first of `candidates`, file names or paths, that can be loaded. `what` names it in
  // errors. Throws Error(kUnsupported), which says what was tried and why that failed.
  SharedLibrary(std::string what, const std::vector<std::string>& candidates);

  // Sets `function` to the library's function of this name. Throws Error(kUnsupported) if it has
  // none.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address(name));
  }

  const std::string& path() const noexcept { return path_; }

 private:
  void* address(const char* name) const;

  std::string what_;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace thinwire::device
