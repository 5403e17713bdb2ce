// check_output: keeps what runs have saved, and finds out before the work whether its result can be
// written.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "shrink/small_chain.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

bool is_weights(std::string_view name) { return name == kModelName || place_of_small_file(name); }

// The names that runs and checkpoints give to their files, but for pages, which are drawn anew at
// any time.
bool is_saved_name(std::string_view name) {
  constexpr std::string_view kNames[] = {kManifestName,  kOptimizerName, kSmallOptimizerName,
                                         kRecipeName,    kMetricsName,   kSummaryName,
                                         kDecisionsName, kLogName};
  return is_weights(name) || is_checkpoint_name(name) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         (name.starts_with(kRankPrefix) && name.ends_with(".safetensors")) ||
         name.find("tfevents") != name.npos;
}

bool has(const fs::path& folder, const char* name) {
  std::error_code absent;
  return fs::exists(folder / name, absent);
}

bool is_run(const fs::path& folder) {
  return !list_checkpoints(folder).empty() || has(folder, kMetricsName);
}

bool holds_checkpoint(const fs::path& folder) {
  if (has(folder, kManifestName) || has(folder, kOptimizerName)) return true;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (place_of_small_file(entry.path().filename().string())) return true;
  return false;
}

// `named` is the path as the user wrote it, `path` the same or where its link leads.
void protect(const std::string& named, const fs::path& path) {
  const std::string name = path.filename().string();
  const fs::path folder = fs::absolute(path).parent_path();
  const bool run = is_run(folder);
  const bool inside = (folder.filename() == kSignalsFolder ||
                       (folder.filename() == kRanksFolder && is_rank_figures(name))) &&
                      is_run(folder.parent_path());
  if (!(inside || (is_saved_name(name) && (run || holds_checkpoint(folder))))) return;
  std::error_code absent;
  const char* owner = run || inside ? "run" : "checkpoint";
  if (is_weights(name) && !fs::exists(path, absent))
    throw Error(ErrorCode::kBadOption,
                named + ": would be read in the place of the " +
                    (run ? "run's checkpoints" : "checkpoint") +
                    " in that folder; choose another name, such as weights.safetensors, or another "
                    "folder");
  throw Error(ErrorCode::kBadOption,
              named + ": has the name of a file of the " + owner +
                  " in that folder, and would take its place; choose another name or another "
                  "folder");
}

[[noreturn]] void cannot_be_written(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kIo, path + ": cannot be written: " + why);
}

}  // namespace

void protect_saved_files(const std::string& path) {
  protect(path, path);
  std::error_code error;
  // A stream that writes to a link writes to the file behind it.
  if (!fs::is_symlink(path, error)) return;
  const fs::path target = fs::weakly_canonical(path, error);
  if (!error) protect(path, target);
}

void check_output(const std::string& path, Writing how) {
  protect_saved_files(path);
  const fs::path file = path, folder = fs::absolute(file).parent_path();
  std::error_code error;
  if (!file.has_filename() || fs::is_directory(file, error))
    cannot_be_written(path, "it is a folder; name a file");
  if (!fs::is_directory(folder, error))
    cannot_be_written(path, "there is no folder " + file.parent_path().string());
  // What is there and no ordinary file, such as /dev/stdout, is written to as it is.
  const bool there = fs::exists(file, error);
  const bool replaced = how == Writing::kReplaces && fs::is_regular_file(file, error);
  const fs::path& asked = there && !replaced ? file : folder;
  if (::access(asked.c_str(), W_OK) != 0)
    cannot_be_written(path, asked.string() + ": " + std::strerror(errno));
}

}  // namespace thinwire
