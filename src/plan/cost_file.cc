// Reads and replaces the file of costs.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "thinwire/step_plan.h"

namespace thinwire {

namespace fs = std::filesystem;

// In $XDG_CACHE_HOME, if that is set.
std::string usual_cost_file() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr ? fs::path(value) : fs::path();
  };
  const fs::path cache = folder("XDG_CACHE_HOME"), home = folder("HOME");
  if (!cache.empty()) return (cache / "thinwire/costs.txt").string();
  return home.empty() ? "" : (home / ".cache/thinwire/costs.txt").string();
}

Result<CostTable> read_costs(const std::string& path) {
  std::error_code absent;
  if (path.empty() || !fs::exists(path, absent)) return CostTable();
  if (!fs::is_regular_file(path, absent))
    return Status::fail(ErrorCode::kIo, path + ": cannot be read");
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return Status::fail(ErrorCode::kIo, path + ": cannot be read");
  Result<CostTable> read = CostTable::from_text(text);
  // Those of another version are measured again.
  const std::string own = CostTable().to_text(), title = own.substr(0, own.find('\n') + 1);
  const bool other_version =
      text.starts_with("thinwire costs of codecs, version ") && !text.starts_with(title);
  if (other_version && path == usual_cost_file()) return CostTable();
  if (!read) return Status::fail(read.status().code(), path + ": " + read.status().message());
  const bool ours = read.value().processor() == CostTable().processor();
  if (!ours && path == usual_cost_file()) return CostTable();
  return read;
}

// By another name first, so that a reader finds the old table or the new one.
Status write_costs(const std::string& path, const CostTable& costs) {
  std::error_code error;
  if (fs::path(path).has_parent_path()) fs::create_directories(fs::path(path).parent_path(), error);
  const std::string temporary = path + "." + std::to_string(getpid());
  {
    std::ofstream file(temporary, std::ios::binary);
    file << costs.to_text() << std::flush;
    if (!file) return Status::fail(ErrorCode::kIo, path + ": cannot be written");
  }
  fs::rename(temporary, path, error);
  if (error) return Status::fail(ErrorCode::kIo, path + ": " + error.message());
  return Status::ok();
}

}  // namespace thinwire
