// The checks of `thinwire data`: which files are there, and whether they are the published ones.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "thinwire/status.h"
#include "thinwire/trainer.h"
#include "train/data/catalogue.h"
#include "train/data/compressed_file.h"
#include "train/data/data_places.h"
#include "train/data/digest.h"
#include "train/data/recordings.h"

namespace thinwire {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Of a folder or archive of recordings, what `cd recordings && sha256sum *.wav | sha256sum` gives.
std::string digest_of_recordings(const std::string& path) {
  std::string listing;
  for (const Recording& recording : read_recordings(path))
    listing += digest_of(recording.file, DigestKind::kSha256) + "  " + recording.name + "\n";
  return digest_of(bytes_of(listing), DigestKind::kSha256);
}

std::string digest_of_file(const CatalogueFile& file, const std::string& path) {
  if (file.holds_recordings) return digest_of_recordings(path);
  return digest_of(read_file(path),
                   file.digest.size() == 40 ? DigestKind::kSha1 : DigestKind::kSha256);
}

// What is wrong with part `part` of a data set; empty if nothing is.
std::string problem_with(const CatalogueRow& row, const FoundFile& found, size_t part) {
  if (found.file == nullptr) {
    const auto file = std::ranges::find(row.files, part, &CatalogueFile::part);
    return std::string(file->name) + std::string(row.suffix) + ": missing";
  }
  try {
    if (digest_of_file(*found.file, found.path.string()) == found.file->digest) return {};
    return found.path.filename().string() + ": its content is not what was published";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::vector<DataSetInfo> list_data_sets() {
  std::vector<DataSetInfo> infos;
  for (const CatalogueRow& row : catalogue()) {
    DataSetInfo info{.name = std::string(row.name),
                     .about = std::string(row.about),
                     .origin = std::string(row.origin),
                     .terms = std::string(row.terms),
                     .files = {}};
    for (size_t i = 0; i < row.files.size(); ++i) {
      if (i > 0 && row.files[i].part == row.files[i - 1].part) continue;  // an alternative
      info.files.push_back(std::string(row.folders.front()) + "/" + std::string(row.files[i].name) +
                           std::string(row.suffix));
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<std::string> missing_data_files(std::string_view name, const std::string& data_folder) {
  const CatalogueRow& row = find_data_set(name);
  return missing_parts(row, look_for(row, data_folder));
}

std::vector<std::string> shared_data_folders() {
  std::vector<std::string> folders;
  for (const std::filesystem::path& root : shared_roots()) {
    std::error_code absent;
    if (std::filesystem::is_directory(root, absent)) folders.push_back(root.string());
  }
  return folders;
}

DataSetState check_data_set(std::string_view name, const std::string& data_folder) {
  const CatalogueRow& row = find_data_set(name);
  const FoundFiles found = look_for(row, data_folder);
  DataSetState state;
  state.folder = found.folder.string();
  for (size_t part = 0; part < found.parts.size(); ++part) {
    std::string problem = problem_with(row, found.parts[part], part);
    if (!problem.empty()) state.problems.push_back(std::move(problem));
  }
  state.ready = state.problems.empty();
  return state;
}

}  // namespace thinwire
