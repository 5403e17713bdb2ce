// The part of NVRTC's interface that is needed, by dlopen.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "thinwire/status.h"

namespace thinwire::device {
namespace {

namespace fs = std::filesystem;

using Program = void*;
using Code = int;  // nvrtcResult; 0 is success
constexpr Code kInvalidOption = 5;

// Files of a folder whose names begin so, the latest version first.
std::vector<std::string> files_of(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(prefix)) files.push_back(entry.path());
  std::sort(files.rbegin(), files.rend());
  return files;
}

// The folders of packages beside the libtorch that this process has loaded, if it is of a Python
// package.
std::vector<std::string> folders_beside_torch() {
  std::string library;
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, size_t /*size*/, void* found) {
        const std::string_view path = loaded->dlpi_name != nullptr ? loaded->dlpi_name : "";
        if (path.find("/torch/lib/libtorch") == std::string_view::npos) return 0;
        *static_cast<std::string*>(found) = path;
        return 1;
      },
      &library);
  std::vector<std::string> folders;
  if (library.empty()) return folders;
  std::error_code ignored;
  const fs::path packages = fs::path(library).parent_path().parent_path().parent_path() / "nvidia";
  for (const auto& entry : fs::directory_iterator(packages, ignored))
    folders.push_back((entry.path() / "lib").string());
  return folders;
}

std::vector<std::string> candidates(std::vector<std::string> folders) {
  for (std::string& folder : folders_beside_torch()) folders.push_back(std::move(folder));
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    // NVRTC 13.0 looks for its builtins by name alone and does not find them beside it, unless they
    // are loaded.
    for (const std::string& builtins : files_of(folder, "libnvrtc-builtins.so"))
      dlopen(builtins.c_str(), RTLD_NOW | RTLD_GLOBAL);
    for (const std::string& path : files_of(folder, "libnvrtc.so")) paths.push_back(path);
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    paths.emplace_back(name);
  return paths;
}

// Destroys a program at the end of a scope.
struct Destroy {
  Code (*destroy)(Program*);
  Program* program;
  ~Destroy() { destroy(program); }
};

}  // namespace

Nvrtc::Nvrtc(const std::vector<std::string>& folders)
    : library_("NVRTC (pip install nvidia-cuda-nvrtc, or a CUDA toolkit)", candidates(folders)) {}

std::string Nvrtc::version() const {
  Code (*ask)(int*, int*) = nullptr;
  library_.find("nvrtcVersion", ask);
  int major = 0, minor = 0;
  ask(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

const std::vector<std::string>& Nvrtc::options() {
  static const std::vector<std::string> all = {"--std=c++17", "--fmad=false", "--ftz=false",
                                               "--prec-div=true", "--prec-sqrt=true"};
  return all;
}

Compiled Nvrtc::compile(std::string_view name, const std::string& source,
                        std::string_view architecture) const {
  Code (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  Code (*run)(Program, int, const char* const*);
  Code (*destroy)(Program*);
  Code (*size)(Program, size_t*);
  Code (*get)(Program, char*);
  library_.find("nvrtcCreateProgram", create);
  library_.find("nvrtcCompileProgram", run);
  library_.find("nvrtcDestroyProgram", destroy);

  Program program = nullptr;
  const std::string file = std::string(name) + ".cu";
  if (create(&program, source.c_str(), file.c_str(), 0, nullptr, nullptr) != 0)
    throw Error(ErrorCode::kUnsupported, "device: NVRTC made no program of " + file);
  const Destroy at_the_end{destroy, &program};
  const auto text = [&](const char* size_name, const char* get_name) {
    library_.find(size_name, size);
    library_.find(get_name, get);
    size_t bytes = 0;
    std::string out;
    if (size(program, &bytes) == 0) out.resize(bytes);
    if (!out.empty()) get(program, out.data());
    return out;
  };

  const std::string arch = "--gpu-architecture=" + std::string(architecture);
  std::vector<const char*> flags = {arch.c_str()};
  for (const std::string& option : options()) flags.push_back(option.c_str());
  const Code code = run(program, static_cast<int>(flags.size()), flags.data());
  if (code == kInvalidOption)
    throw Error(ErrorCode::kUnsupported, "device: NVRTC " + version() + " does not compile for " +
                                             std::string(architecture));
  if (code != 0)
    throw Error(ErrorCode::kContract, "device: kernel text " + file + " for " +
                                          std::string(architecture) + ":\n" +
                                          text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"));
  return {.cubin = text("nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
          .ptx = text("nvrtcGetPTXSize", "nvrtcGetPTX")};
}

}  // namespace thinwire::device
