// Finds the file with the weights, and reads it by its form.
// SPDX-License-Identifier: Apache-2.0
#include "train/saved_model.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "shrink/small_chain.h"
#include "thinwire/small_checkpoint.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/manifest.h"
#include "train/safetensors.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// A small model, with the files that it follows if it follows some. One that stands alone may have
// any name.
SavedModel read_small(const fs::path& path, std::vector<std::byte> own) {
  SavedModel model{.from = path.string(), .arrays = {}};
  std::vector<std::vector<std::byte>> contents;
  std::vector<SmallFileBytes> files;
  const auto place = place_of_small_file(path.filename().string());
  for (size_t i = 0; place && i < *place && !stands_alone(own); ++i) {
    const fs::path earlier = path.parent_path() / small_file_name(i);
    contents.push_back(read_file(earlier));
    files.push_back({earlier.string(), {}});
  }
  contents.push_back(std::move(own));
  files.push_back({path.string(), {}});
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].bytes = contents[i];
    model.bytes += contents[i].size();
  }
  model.arrays = expand_small_model(files).value();
  return model;
}

std::optional<size_t> last_place(const fs::path& folder) {
  std::optional<size_t> last;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const auto place = place_of_small_file(entry.path().filename().string()))
      last = std::max(last.value_or(0), *place);
  return last;
}

// The files that the manifest lists, with the sizes and checksums that it says.
SavedModel read_listed_files(const fs::path& folder) {
  Checkpoint loaded = load_model(folder);
  SavedModel model{.from = loaded.small_from, .arrays = std::move(loaded.model)};
  if (model.from.empty()) model.from = (folder / kModelName).string();
  const fs::path last = model.from;
  model.bytes = fs::file_size(last);
  const auto place = place_of_small_file(last.filename().string());
  for (size_t i = 0; place && i < *place; ++i)
    model.bytes += fs::file_size(folder / small_file_name(i));
  return model;
}

// By the small models that are there.
SavedModel read_small_folder(const fs::path& folder) {
  const auto place = last_place(folder);
  if (!place)
    throw Error(ErrorCode::kIo, folder.string() + " has no model.safetensors and no small model");
  const fs::path last = folder / small_file_name(*place);
  return read_small(last, read_file(last));
}

// Of a checkpoint. Without a manifest it is a folder that others made of its files.
SavedModel read_weights_in(const fs::path& folder) {
  if (fs::exists(folder / kManifestName)) return read_listed_files(folder);
  return fs::exists(folder / kModelName) ? read_saved_model(folder / kModelName)
                                         : read_small_folder(folder);
}

// Small models have checksums of their own.
bool is_listed(const fs::path& file) {
  const fs::path manifest = file.parent_path() / kManifestName;
  return file.filename() == kModelName && fs::exists(manifest) &&
         read_manifest(manifest).files.contains(kModelName);
}

}  // namespace

SavedModel read_saved_model(const fs::path& from) {
  if (fs::is_directory(from)) {
    if (fs::exists(from / kManifestName) || fs::exists(from / kModelName) || last_place(from))
      return read_weights_in(from);
    const auto checkpoints = list_checkpoints(from);
    if (checkpoints.empty())
      throw Error(ErrorCode::kIo, from.string() + " has no model.safetensors and no checkpoint");
    return read_weights_in(checkpoints.back());
  }
  if (is_listed(from)) return read_listed_files(from.parent_path());
  std::vector<std::byte> bytes = read_file(from);
  if (is_small_model(bytes) || from.extension() == ".small")
    return read_small(from, std::move(bytes));
  return {.from = from.string(),
          .arrays = read_safetensors(from.string(), bytes).value().arrays,
          .bytes = bytes.size()};
}

ExpandedModel expand_checkpoint(const std::string& from, const std::string& to) {
  try {
    check_output(to, Writing::kReplaces);
    std::error_code absent;
    if (fs::equivalent(from, to, absent))
      throw Error(ErrorCode::kBadOption,
                  to + ": is the file that is read, and would be lost; choose another name");
    const SavedModel model = read_saved_model(from);
    const auto bytes = write_safetensors({.metadata = {{"format", "pt"}}, .arrays = model.arrays});
    replace_durably(to, bytes);
    return {.from = model.from,
            .arrays = model.arrays.size(),
            .saved_bytes = model.bytes,
            .expanded_bytes = bytes.size()};
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, error.what());
  }
}

}  // namespace thinwire
