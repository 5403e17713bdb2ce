// Looks for checkpoints, and for the summary that says that a run is finished.
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace thinwire::cli {

namespace fs = std::filesystem;

bool is_unfinished(const fs::path& folder) {
  std::error_code absent;
  bool checkpoint = false;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    checkpoint |= entry.path().filename().string().starts_with("checkpoint-") &&
                  entry.path().extension() != ".tmp";
  std::ifstream file(folder / "summary.json");
  const auto summary = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return checkpoint && !(summary.is_object() && summary.value("finished", false));
}

}  // namespace thinwire::cli
