// The folders with data sets: the user's first, then the system's, then thinwire's own.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/data_places.h"

#include <algorithm>

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// Debian's packages dataset-* install here.
constexpr std::string_view kSystemFolder = "/usr/share/datasets";

std::vector<fs::path> all_places(const std::string& user_folder,
                                 std::span<const std::string_view> names) {
  std::vector<fs::path> roots;
  std::vector<fs::path> places;
  if (!user_folder.empty()) {
    const fs::path folder = fs::path(user_folder).lexically_normal();
    const fs::path last = folder.has_filename() ? folder : folder.parent_path();
    if (std::ranges::find(names, last.filename().string()) != names.end()) places.push_back(last);
    roots.push_back(folder);
  }
  std::ranges::move(shared_roots(), std::back_inserter(roots));
  for (const fs::path& root : roots) {
    for (const std::string_view name : names) places.push_back(root / name);
  }
  return places;
}

}  // namespace

// The system's, then what ships with thinwire: beside the installed program, wherever that was
// moved to, where it was installed, or in the source tree that it was built from.
std::vector<fs::path> shared_roots() {
  std::vector<fs::path> roots = {kSystemFolder};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) roots.push_back(program.parent_path().parent_path() / "share" / "thinwire");
  roots.emplace_back(THINWIRE_INSTALLED_DATA);
  roots.emplace_back(THINWIRE_SOURCE_DATA);
  return roots;
}

std::vector<fs::path> data_folders(const std::string& user_folder,
                                   std::span<const std::string_view> names) {
  std::vector<fs::path> places = all_places(user_folder, names);
  std::erase_if(places, [](const fs::path& place) {
    std::error_code error;
    return !fs::is_directory(place, error);
  });
  return places;
}

std::string describe_places(const std::string& user_folder,
                            std::span<const std::string_view> names) {
  std::string text;
  for (const fs::path& place : all_places(user_folder, names))
    text += (text.empty() ? "" : ", ") + place.string();
  return text;
}

fs::path find_packed(const fs::path& folder, std::string_view file) {
  for (const char* suffix : {"", ".gz", ".xz"}) {
    fs::path path = folder / (std::string(file) + suffix);
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  return {};
}

}  // namespace thinwire
