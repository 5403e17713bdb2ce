// What is known about each data set: where it comes from, its files, their checksums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

// A file by its name once unpacked, and the SHA-256 of its content (64 hexadecimal digits) or,
// where only that was published, SHA-1 (40).
struct CatalogueFile {
  std::string_view name;
  std::string_view digest;
  size_t part = 0;  // numbered from 0; any one of the files with the same part will do
  // Many wav files: the digest is of what `cd recordings && sha256sum *.wav` prints.
  bool holds_recordings = false;
};

struct CatalogueRow {
  std::string_view name;
  std::string_view about;
  std::string_view origin;
  std::string_view terms;
  std::vector<std::string_view> folders;  // names that its folder goes by, the usual one first
  std::string_view suffix;                // of the files as they are published: ".gz"
  std::vector<CatalogueFile> files;       // by part
};

std::span<const CatalogueRow> catalogue();

// Throws Error(kUnknownName) with the known names.
const CatalogueRow& find_data_set(std::string_view name);

struct FoundFile {
  const CatalogueFile* file = nullptr;  // null: missing
  std::filesystem::path path;
};

struct FoundFiles {
  std::filesystem::path folder;  // empty: no folder was found
  std::vector<FoundFile> parts;
};

// The files of each part in the first folder that has them all, else in the one with the most.
FoundFiles look_for(const CatalogueRow& row, const std::string& user_folder);

// The first name of every part that is missing.
std::vector<std::string> missing_parts(const CatalogueRow& row, const FoundFiles& found);

// The paths of all parts. Throws Error(kIo) that names what is missing and the places looked at.
std::vector<std::string> locate_files(const CatalogueRow& row, const std::string& user_folder);

}  // namespace thinwire
