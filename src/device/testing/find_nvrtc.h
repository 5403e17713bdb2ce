// Where tests find NVRTC: in the .venv of the sources, or where the system looks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace thinwire::device {

// Folders of the packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, if they are there.
inline std::vector<std::string> nvrtc_folders() {
  namespace fs = std::filesystem;
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(THINWIRE_SOURCES "/.venv/lib", ignored))
    for (const auto& part :
         fs::directory_iterator(python.path() / "site-packages" / "nvidia", ignored))
      folders.push_back(part.path() / "lib");
  return folders;
}

}  // namespace thinwire::device
