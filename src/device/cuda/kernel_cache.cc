// A file per text, architecture and checksum of all that it was made of. Files begin with a
// checksum of what follows.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernel_cache.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>

#include "core/checksum.h"

namespace thinwire::device {
namespace {

namespace fs = std::filesystem;

uint64_t sum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Of no other thread, process or machine that has the same folder, whose process numbers may be
// alike.
std::string name_of_its_own() {
  std::random_device random;
  const uint64_t high = random(), low = random();
  return hexadecimal(high << 32 | low);
}

fs::path path_of(const fs::path& folder, const KernelKey& key) {
  // Lengths keep the parts apart.
  std::string all;
  for (const std::string_view part :
       {key.name, key.source, key.options, key.compiler, key.architecture})
    all += std::to_string(part.size()) + ":" + std::string(part);
  return folder / (std::string(key.name) + "-" + std::string(key.architecture) + "-" +
                   hexadecimal(sum_of(all)) + ".cubin");
}

// Empty if there is no good file.
std::string read(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  uint64_t sum = 0;
  if (text.size() <= sizeof sum) return "";
  std::memcpy(&sum, text.data(), sizeof sum);
  text.erase(0, sizeof sum);
  return sum_of(text) == sum ? text : "";
}

// Whole or not at all: others may read and write the same file.
void write(const fs::path& path, std::string_view code) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path part = path.string() + "." + name_of_its_own();
  std::ofstream file(part, std::ios::binary);
  const uint64_t sum = sum_of(code);
  file.write(reinterpret_cast<const char*>(&sum), sizeof sum);
  file.write(code.data(), static_cast<std::streamsize>(code.size()));
  file.close();
  if (file) {
    fs::rename(part, path, error);
    if (!error) return;
  }
  fs::remove(part, error);
}

}  // namespace

fs::path kernel_cache_folder() {
  const auto set = [](const char* name) {  // an empty variable counts as one that is not set
    const char* const value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  if (const fs::path folder = set("THINWIRE_CACHE"); !folder.empty()) return folder;
  if (const fs::path folder = set("XDG_CACHE_HOME"); !folder.empty()) return folder / "thinwire";
  if (const fs::path folder = set("HOME"); !folder.empty()) return folder / ".cache" / "thinwire";
  return {};
}

std::string cached_kernel(const fs::path& folder, const KernelKey& key,
                          const std::function<std::string()>& compile) {
  if (folder.empty()) return compile();
  const fs::path path = path_of(folder, key);
  std::string code = read(path);
  if (!code.empty()) return code;
  code = compile();
  write(path, code);
  return code;
}

}  // namespace thinwire::device
