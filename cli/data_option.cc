// Checks the folder of --data before anything is read.
// SPDX-License-Identifier: Apache-2.0
#include "cli/data_option.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "cli/exit_code.h"
#include "cli/text.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

constexpr const char* kVariable = "THINWIRE_DATA";
constexpr const char* kDefault = "data";

// How the user named the folder.
std::string origin_of(const std::string& folder) {
  const char* variable = std::getenv(kVariable);
  return variable != nullptr && folder == variable ? fmt::format("{}={}", kVariable, folder)
                                                   : fmt::format("--data {}", folder);
}

void require_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  const bool there = std::filesystem::exists(folder, error);
  throw UsageError(
      ErrorCode::kIo,
      fmt::format("{}: {}; name a folder with data sets, or leave it out to use {}, {}",
                  origin_of(folder), there ? "not a folder" : "no such folder", kDefault,
                  join(shared_data_folders(), ", ")));
}

}  // namespace

void add_data_option(CLI::App& command, std::string& folder) {
  folder = kDefault;
  command
      .add_option_function<std::string>(
          "--data",
          [&folder](const std::string& given) {
            require_folder(given);
            folder = given;
          },
          "Folder with data sets")
      ->default_str(kDefault)
      ->envname(kVariable)
      ->type_name("DIR");
}

bool gave_data(const CLI::App& command) {
  const auto& given = command.get_option("--data")->results();
  const char* variable = std::getenv(kVariable);
  return !given.empty() && (variable == nullptr || given.front() != variable);
}

}  // namespace thinwire::cli
