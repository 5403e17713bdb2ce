// The table of data sets, and finding their files.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/catalogue.h"

#include <algorithm>

#include "thinwire/status.h"
#include "thinwire/trainer.h"
#include "train/data/data_places.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// The digests of Fashion-MNIST are of the content of the files that its authors publish MD5 sums
// of: 8d4fb7e6c68d591d4c3dfef9ec88bf0d, 25c81989df183df01b3e8a0aad5dffbe,
// bef4ecab320f06d8554ea6380940ec79 and bb300cfdad3c16e7a12a480ee83cd310. Debian's packages hold the
// same deflate streams without the name and time in the gzip header.
const std::vector<CatalogueRow>& rows() {
  static const std::vector<CatalogueRow> table = {
      {.name = "fashion-mnist",
       .about = "60,000 + 10,000 images of clothing, 28 x 28 grey, 10 classes",
       .origin = "Zalando Research, github.com/zalandoresearch/fashion-mnist; Debian package "
                 "dataset-fashion-mnist",
       .terms = "MIT",
       .folders = {"fashion-mnist", "fashion_mnist", "FashionMNIST/raw"},
       .suffix = ".gz",
       .files = {{"train-images-idx3-ubyte",
                  "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888", 0},
                 {"train-labels-idx1-ubyte",
                  "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 1},
                 {"t10k-images-idx3-ubyte",
                  "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b", 2},
                 {"t10k-labels-idx1-ubyte",
                  "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 3}}},
  };
  return table;
}

FoundFiles look_in(const fs::path& folder, const CatalogueRow& row) {
  FoundFiles found{.folder = folder, .parts = std::vector<FoundFile>(row.files.back().part + 1)};
  for (const CatalogueFile& file : row.files) {
    FoundFile& part = found.parts[file.part];
    if (part.file != nullptr) continue;
    part.path = find_packed(folder, file.name);
    if (!part.path.empty()) part.file = &file;
  }
  return found;
}

auto count_found(const FoundFiles& files) {
  return std::ranges::count_if(files.parts, [](const auto& part) { return part.file != nullptr; });
}

}  // namespace

std::span<const CatalogueRow> catalogue() { return rows(); }

const CatalogueRow& find_data_set(std::string_view name) {
  std::string known;
  for (const CatalogueRow& row : rows()) {
    if (row.name == name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(ErrorCode::kUnknownName,
              "unknown data set '" + std::string(name) + "'; known: " + known);
}

FoundFiles look_for(const CatalogueRow& row, const std::string& user_folder) {
  FoundFiles best{.folder = {}, .parts = std::vector<FoundFile>(row.files.back().part + 1)};
  for (const fs::path& folder : data_folders(user_folder, row.folders)) {
    FoundFiles found = look_in(folder, row);
    if (best.folder.empty() || count_found(found) > count_found(best)) best = std::move(found);
  }
  return best;
}

std::vector<std::string> locate_files(const CatalogueRow& row, const std::string& user_folder) {
  const FoundFiles found = look_for(row, user_folder);
  std::vector<std::string> paths;
  std::string missing;
  for (size_t part = 0; part < found.parts.size(); ++part) {
    if (found.parts[part].file != nullptr) {
      paths.push_back(found.parts[part].path.string());
    } else {
      const auto file = std::ranges::find(row.files, part, &CatalogueFile::part);
      missing += (missing.empty() ? "" : ", ") + std::string(file->name);
    }
  }
  if (!missing.empty())
    throw Error(ErrorCode::kIo, "data set " + std::string(row.name) + ": no " + missing + " (" +
                                    std::string(row.origin) + "); looked in " +
                                    describe_places(user_folder, row.folders));
  return paths;
}

}  // namespace thinwire
