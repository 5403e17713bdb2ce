// Writes and reads runs.json. Each version takes the place of the one before in one rename, so that
// nobody reads half of it.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_list.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kName = "runs.json";

}  // namespace

RunList::RunList(fs::path folder, std::vector<std::string> runs)
    : folder_(std::move(folder)), runs_(std::move(runs)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  write(/*ended=*/false);
}

RunList::~RunList() { write(/*ended=*/true); }

void RunList::write(bool ended) const {
  const Json json = {{"runs", runs_}, {"ended", ended}};
  const fs::path path = folder_ / kName, unfinished = path.string() + ".tmp";
  std::ofstream file(unfinished, std::ios::binary);
  file << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  std::error_code error;
  if (file) fs::rename(unfinished, path, error);
}

std::optional<ListedRuns> listed_runs(const fs::path& folder) {
  std::ifstream file(folder / kName);
  if (!file) return std::nullopt;
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto runs = json.is_object() ? json.find("runs") : json.end();
  if (runs == json.end() || !runs->is_array()) return std::nullopt;
  ListedRuns listed{.runs = {}, .ended = json.value("ended", Json()) == true};
  for (const Json& run : *runs)
    if (run.is_string()) listed.runs.push_back(run.get<std::string>());
  return listed;
}

}  // namespace thinwire::cli
