// Saves checkpoints under a temporary name, then renames them; loads and checks them.
// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <algorithm>
#include <cstdio>

#include "core/checksum.h"
#include "feedback/saved_ranks.h"
#include "train/durable_file.h"
#include "train/manifest.h"
#include "train/safetensors.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "progress.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr std::string_view kPrefix = "checkpoint-";
constexpr size_t kKept = 2;  // the newest, and one to fall back on

std::string formatted(const char* format, auto... numbers) {
  char buffer[96];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

std::string folder_name(uint64_t step) {
  return formatted("checkpoint-%010llu", static_cast<unsigned long long>(step));
}

std::string rank_file(int rank, int size) {
  return formatted("state-rank-%04d-of-%04d.safetensors", rank, size);
}

FileMark write_arrays(const fs::path& path, const StateArrays& arrays) {
  const auto bytes = write_safetensors({.metadata = {{"format", "pt"}}, .arrays = arrays});
  write_durably(path, bytes);
  return {.bytes = bytes.size(), .xxh3 = checksum(bytes)};
}

StateArrays read_arrays(const fs::path& path, const FileMark& mark) {
  const auto bytes = read_file(path);
  if (bytes.size() != mark.bytes)
    throw Error(ErrorCode::kBadLength,
                path.string() + ": truncated or foreign: " + std::to_string(bytes.size()) +
                    " bytes instead of " + std::to_string(mark.bytes));
  if (checksum(bytes) != mark.xxh3)
    throw Error(ErrorCode::kCorrupt, path.string() + ": damaged: its checksum is wrong");
  return read_safetensors(path.string(), bytes).value().arrays;
}

// Folders of runs that were killed while saving.
void remove_leftovers(const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(".tmp")) fs::remove_all(entry.path());
  }
}

// In one step out of sight, then for good: what is half removed must not look like a checkpoint.
void remove_checkpoint(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  const fs::path hidden = folder.string() + ".old.tmp";
  fs::remove_all(hidden);
  fs::rename(folder, hidden);
  fs::remove_all(hidden);
}

// All but the newest ones. Those after `newest` too: of a run that was resumed from before them.
void remove_superseded(const fs::path& newest, const std::optional<uint64_t>& others_after) {
  auto all = list_checkpoints(newest.parent_path());
  if (others_after) {
    const fs::path last = newest.parent_path() / folder_name(*others_after);
    std::erase_if(all, [&](const fs::path& folder) {
      const bool other = folder > last && folder != newest;
      if (other) remove_checkpoint(folder);
      return other;
    });
  }
  const auto at = static_cast<size_t>(std::find(all.begin(), all.end(), newest) - all.begin());
  for (size_t i = 0; i < all.size(); ++i)
    if (i > at || i + kKept <= at) remove_checkpoint(all[i]);
}

// std::filesystem's exceptions as ours.
template <typename Work>
void on_disk(const Work& work) {
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, error.what());
  }
}

// The checkpoint itself, or the newest in the folder.
fs::path find_checkpoint(const fs::path& from) {
  if (fs::exists(from / kManifest)) return from;
  const auto all = list_checkpoints(from);
  if (all.empty()) throw Error(ErrorCode::kIo, from.string() + ": holds no checkpoint");
  return all.back();
}

Checkpoint read_checkpoint(const fs::path& folder, int rank, int size, int inside) {
  const Manifest manifest = read_manifest(folder / kManifest);
  const auto read = [&](const std::string& name) {
    const auto mark = manifest.files.find(name);
    if (mark == manifest.files.end())
      throw Error(ErrorCode::kCorrupt, (folder / kManifest).string() + ": does not list " + name);
    return read_arrays(folder / name, mark->second);
  };
  Checkpoint loaded{.step = manifest.step,
                    .world_size = manifest.world_size,
                    .recipe = manifest.recipe,
                    .totals = manifest.totals,
                    .model = read(kModel),
                    .optimizer = read(kOptimizer),
                    .ranks = {}};
  if (manifest.world_size == size) {
    loaded.ranks.push_back(read(rank_file(rank, size)));
    if (marked_inside(loaded.ranks[0]) == inside) return loaded;
    loaded.ranks.clear();  // what groups hold goes to others
  }
  for (int old = 0; old < manifest.world_size; ++old)
    loaded.ranks.push_back(read(rank_file(old, manifest.world_size)));
  return loaded;
}

// "; the one before it is ...", when there is one.
std::string fall_back(const fs::path& folder) {
  const auto all = list_checkpoints(folder.parent_path());
  const auto found = std::find(all.begin(), all.end(), folder);
  if (found == all.begin() || found == all.end()) return {};
  return "; the checkpoint before it is " + (found - 1)->string();
}

}  // namespace

std::vector<fs::path> list_checkpoints(const fs::path& out) {
  std::vector<fs::path> found;
  std::error_code ignored;  // a folder that is not there has none
  for (const auto& entry : fs::directory_iterator(out, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view digits = std::string_view(name).substr(kPrefix.size());
    if (!digits.empty() && digits.find_first_not_of("0123456789") == digits.npos)
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path save_checkpoint(Group& group, const fs::path& out, const Checkpoint& mine) {
  const fs::path folder = out / folder_name(mine.step);
  const fs::path growing = folder.string() + ".tmp";
  together(group, [&] {
    if (group.rank() != 0) return;
    on_disk([&] {
      remove_leftovers(out);
      fs::create_directory(growing);
    });
  });

  FileMark mark;
  Manifest manifest;
  together(group, [&] {
    mark = write_arrays(growing / rank_file(group.rank(), group.size()), mine.ranks.at(0));
    if (group.rank() != 0) return;
    manifest.files[kModel] = write_arrays(growing / kModel, mine.model);
    manifest.files[kOptimizer] = write_arrays(growing / kOptimizer, mine.optimizer);
  });
  std::vector<FileMark> marks(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mark, 1)), std::as_writable_bytes(std::span(marks)));

  together(group, [&] {
    if (group.rank() != 0) return;
    on_disk([&] {
      manifest.step = mine.step;
      manifest.world_size = group.size();
      manifest.recipe = mine.recipe;
      manifest.totals = mine.totals;
      for (int rank = 0; rank < group.size(); ++rank)
        manifest.files[rank_file(rank, group.size())] = marks[static_cast<size_t>(rank)];
      write_manifest(growing / kManifest, manifest);
      sync_folder(growing);
      remove_checkpoint(folder);  // of the same step, by a run that was then resumed from before it
      fs::rename(growing, folder);
      sync_folder(out);
      remove_superseded(folder, mine.others_after);
    });
  });
  return folder;
}

Checkpoint load_checkpoint(Group& group, const fs::path& from, int inside) {
  Checkpoint loaded;
  together(group, [&] {
    const fs::path folder = find_checkpoint(from);
    try {
      on_disk([&] { loaded = read_checkpoint(folder, group.rank(), group.size(), inside); });
    } catch (const Error& error) {
      throw Error(error.code(), error.what() + fall_back(folder));
    }
  });
  return loaded;
}

}  // namespace thinwire
