// Reads the end of a run's log.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_log.h"

#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace thinwire::cli {
namespace {

constexpr std::string_view kComplaint = "thinwire: ";

bool is_progress(std::string_view line) {  // as Progress writes them
  return line.starts_with("  ") && !line.starts_with("  !");
}

}  // namespace

RunLog RunLog::beginning(std::filesystem::path path) {
  std::error_code absent;
  const auto size = std::filesystem::file_size(path, absent);
  RunLog log(std::move(path));
  if (!absent) log.begin_ = static_cast<std::streamoff>(size);
  return log;
}

template <typename Wanted>
std::string RunLog::last_line(const Wanted& wanted) const {
  std::ifstream file(path_);
  file.seekg(begin_);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && wanted(line)) last = line;
  return last;
}

std::string RunLog::last_line() const {
  return last_line([](const std::string&) { return true; });
}

std::string RunLog::progress() const {
  const std::string line = last_line(is_progress);
  return line.empty() ? line : line.substr(2);
}

std::string RunLog::complaint() const {
  const std::string line = last_line();
  return line.starts_with(kComplaint) ? line.substr(kComplaint.size()) : "";
}

}  // namespace thinwire::cli
