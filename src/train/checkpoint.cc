// Saves checkpoints under a temporary name, then renames them; loads and checks them.
// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/checksum.h"
#include "feedback/saved_ranks.h"
#include "shrink/small_chain.h"
#include "train/durable_file.h"
#include "train/manifest.h"
#include "train/safetensors.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporary = ".tmp";

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

FileMark write_marked(const fs::path& path, const std::vector<std::byte>& bytes) {
  write_durably(path, bytes);
  return {.bytes = bytes.size(), .xxh3 = checksum(bytes)};
}

FileMark write_arrays(const fs::path& path, const StateArrays& arrays) {
  return write_marked(path, write_safetensors({.metadata = {{"format", "pt"}}, .arrays = arrays}));
}

// A file of a checkpoint has other bytes than its manifest says.
class DamagedFile : public Error {
 public:
  DamagedFile(ErrorCode code, const fs::path& path, const FileMark& mark, const std::string& why)
      : Error(code, path.string() + ": " + why), name_(path.filename().string()), mark_(mark) {}
  const std::string& name() const noexcept { return name_; }
  const FileMark& mark() const noexcept { return mark_; }

 private:
  std::string name_;
  FileMark mark_;
};

std::vector<std::byte> read_marked(const fs::path& path, const FileMark& mark) {
  const auto bytes = read_file(path);
  if (bytes.size() != mark.bytes)
    throw DamagedFile(ErrorCode::kBadLength, path, mark,
                      "truncated or foreign: " + std::to_string(bytes.size()) +
                          " bytes instead of " + std::to_string(mark.bytes));
  if (checksum(bytes) != mark.xxh3)
    throw DamagedFile(ErrorCode::kCorrupt, path, mark, "damaged: its checksum is wrong");
  return bytes;
}

StateArrays read_arrays(const fs::path& path, const FileMark& mark) {
  return read_safetensors(path.string(), read_marked(path, mark)).value().arrays;
}

// The model, and the optimiser unless it is exact; into the folder and the manifest.
void write_small(const fs::path& folder, const Checkpoint& mine, Manifest& manifest) {
  const SmallSave& small = *mine.small;
  link_chain(small.chain_folder, small.chain, folder);
  for (const SmallChainFile& file : small.chain) manifest.files[file.name] = file.mark;
  const std::string name = small_file_name(small.chain.size());
  manifest.files[name] = write_marked(folder / name, small.bytes);
  manifest.small = small.report;
  if (small.optimizer == SavedOptimizer::kHalf) {
    SmallModel halves;
    for (const StateArray& array : mine.optimizer) halves.push_back(make_half(array));
    manifest.files[kSmallOptimizerName] =
        write_marked(folder / kSmallOptimizerName, write_small_model(halves).bytes);
  } else if (small.optimizer == SavedOptimizer::kExact || mine.optimizer.empty()) {
    manifest.files[kOptimizerName] = write_arrays(folder / kOptimizerName, mine.optimizer);
  }
}

// The model of a chain that the manifest lists.
StateArrays read_small(const fs::path& folder, const Manifest& manifest, std::string& from) {
  std::vector<std::vector<std::byte>> contents;
  std::vector<SmallFileBytes> files;
  for (size_t place = 0; place < kLongestChain; ++place) {
    const auto mark = manifest.files.find(small_file_name(place));
    if (mark == manifest.files.end()) break;
    const fs::path path = folder / mark->first;
    contents.push_back(read_marked(path, mark->second));
    files.push_back({path.string(), {}});
  }
  for (size_t i = 0; i < files.size(); ++i) files[i].bytes = contents[i];
  if (!files.empty()) from = files.back().name;
  return expand_small_model(files).value();
}

// What a folder grows under, and what it goes under when it is removed: of each group its own, so
// that a worker that was silent for long, and without which the others went on, finds nothing of
// theirs.
fs::path temporary(const std::string& stem, uint32_t generation) {
  return stem + (generation == 0 ? "" : "." + std::to_string(generation)) + kTemporary;
}

// Of "checkpoint-0000000120.3.tmp" it is 3; 0 where the name has none.
uint32_t generation_of(std::string name) {
  name.erase(name.size() - std::strlen(kTemporary));
  const size_t dot = name.rfind('.');
  uint32_t generation = 0;
  if (dot != std::string::npos)
    std::from_chars(name.data() + dot + 1, name.data() + name.size(), generation);
  return generation;
}

// In one step out of sight, then for good: what is half removed must not look like a checkpoint,
// and nobody writes into what is being removed. Another worker may have removed it.
void remove_folder(const fs::path& folder, uint32_t generation) {
  const fs::path name = folder.extension() == kTemporary ? folder.stem() : folder.filename();
  const fs::path hidden = temporary((folder.parent_path() / name).string() + ".old", generation);
  fs::remove_all(hidden);
  std::error_code error;
  fs::rename(folder, hidden, error);
  if (error == std::errc::no_such_file_or_directory) return;
  if (error) throw fs::filesystem_error("cannot be removed", folder, error);
  fs::remove_all(hidden);
}

// Folders of runs that were killed while saving, and of groups up to this one.
void remove_leftovers(const fs::path& out, uint32_t generation, uint32_t up_to) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kCheckpointPrefix) && name.ends_with(kTemporary) &&
        generation_of(name) <= up_to)
      leftovers.push_back(entry.path());
  }
  for (const fs::path& folder : leftovers) remove_folder(folder, generation);
}

// A checkpoint of the same step, of a run that was then resumed from before it, goes only if there
// is something for its place: a late worker's folder was removed by those that went on.
void put_in_place(const fs::path& growing, const fs::path& folder, uint32_t generation) {
  std::error_code error;
  fs::rename(growing, folder, error);
  if (!error) return;
  if (error != std::errc::directory_not_empty && error != std::errc::file_exists)
    throw fs::filesystem_error("cannot be renamed", growing, folder, error);
  remove_folder(folder, generation);
  fs::rename(growing, folder);
}

// All but the newest `keep` ones. Those after `newest` too: of a run that was resumed from before
// them. Where workers come and go, they may be of workers that went on without this one: only what
// was there before the run goes.
void remove_superseded(const fs::path& newest, const Checkpoint& mine) {
  auto all = list_checkpoints(newest.parent_path());
  if (mine.others_after) {
    const fs::path last = newest.parent_path() / folder_name(*mine.others_after);
    std::erase_if(all, [&](const fs::path& folder) {
      const bool other = folder > last && folder != newest;
      if (other) remove_folder(folder, mine.generation);
      return other;
    });
  }
  const auto at = static_cast<size_t>(std::find(all.begin(), all.end(), newest) - all.begin());
  for (size_t i = 0; i < all.size(); ++i)
    if ((i > at && mine.generation == 0) || i + mine.keep <= at)
      remove_folder(all[i], mine.generation);
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
  if (is_checkpoint(from)) return from;
  const auto all = list_checkpoints(from);
  if (all.empty()) throw Error(ErrorCode::kIo, from.string() + ": holds no checkpoint");
  return all.back();
}

StateArrays read_listed(const fs::path& folder, const Manifest& manifest, const std::string& name) {
  const auto mark = manifest.files.find(name);
  if (mark == manifest.files.end())
    throw Error(ErrorCode::kCorrupt, (folder / kManifestName).string() + ": does not list " + name);
  return read_arrays(folder / name, mark->second);
}

// What checkpoints have for all ranks alike, but for the optimiser's state.
Checkpoint read_model(const fs::path& folder, const Manifest& manifest) {
  Checkpoint loaded{.step = manifest.step,
                    .world_size = manifest.world_size,
                    .recipe = manifest.recipe,
                    .totals = manifest.totals,
                    .model = {},
                    .optimizer = {},
                    .ranks = {}};
  loaded.model = manifest.files.contains(small_file_name(0))
                     ? read_small(folder, manifest, loaded.small_from)
                     : read_listed(folder, manifest, kModelName);
  return loaded;
}

Checkpoint read_checkpoint(const fs::path& folder, int rank, int size, int inside) {
  const Manifest manifest = read_manifest(folder / kManifestName);
  const auto read = [&](const std::string& name) { return read_listed(folder, manifest, name); };
  Checkpoint loaded = read_model(folder, manifest);
  const auto halves = manifest.files.find(kSmallOptimizerName);
  if (halves == manifest.files.end()) {
    if (manifest.files.contains(kOptimizerName) || loaded.small_from.empty())
      loaded.optimizer = read(kOptimizerName);
    else
      loaded.saved_optimizer = SavedOptimizer::kNone;
  } else {
    const fs::path path = folder / kSmallOptimizerName;
    const auto bytes = read_marked(path, halves->second);
    loaded.optimizer = expand(read_small_model(path.string(), bytes).value()).value();
    if (!loaded.optimizer.empty()) loaded.saved_optimizer = SavedOptimizer::kHalf;
  }
  if (manifest.world_size == size) {
    loaded.ranks.push_back(read(rank_file(rank, size)));
    if (marked_inside(loaded.ranks[0]) == inside) return loaded;
    loaded.ranks.clear();  // what groups hold goes to others
  }
  for (int old = 0; old < manifest.world_size; ++old)
    loaded.ranks.push_back(read(rank_file(old, manifest.world_size)));
  return loaded;
}

// Whether a checkpoint needs the damaged file too, and its own name for it has the damage.
bool shares(const fs::path& folder, const DamagedFile& damaged) {
  try {
    const Manifest manifest = read_manifest(folder / kManifestName);
    const auto found = manifest.files.find(damaged.name());
    if (found == manifest.files.end() || found->second.bytes != damaged.mark().bytes ||
        found->second.xxh3 != damaged.mark().xxh3)
      return false;
    read_marked(folder / damaged.name(), found->second);
    return false;
  } catch (const Error&) {
    return true;
  }
}

// "; the checkpoint before it is ...", of the newest that has not the same damage, when there is
// one.
std::string fall_back(const fs::path& folder, const DamagedFile* damaged = nullptr) {
  const auto all = list_checkpoints(folder.parent_path());
  const auto found = std::find(all.begin(), all.end(), folder);
  if (found == all.begin() || found == all.end()) return {};
  for (auto earlier = found; earlier != all.begin();) {
    --earlier;
    if (damaged == nullptr || !shares(*earlier, *damaged))
      return (earlier + 1 == found ? "; the checkpoint before it is "
                                   : "; the newest checkpoint before it without that damage is ") +
             earlier->string();
  }
  return "; no checkpoint before it is without that damage, since files of small checkpoints are "
         "shared: deltas=0 in checkpoint.compress, or a checkpoint.keep above deltas + 1, keeps "
         "some "
         "that do not share them";
}

}  // namespace

Checkpoint load_model(const fs::path& folder) {
  return read_model(folder, read_manifest(folder / kManifestName));
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code absent;
  return fs::exists(folder / kManifestName, absent);
}

std::vector<fs::path> list_checkpoints(const fs::path& out) {
  std::vector<fs::path> found;
  std::error_code ignored;  // a folder that is not there has none
  for (const auto& entry : fs::directory_iterator(out, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_checkpoint_name(name)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path save_checkpoint(Group& group, const fs::path& out, const Checkpoint& mine) {
  const fs::path folder = out / folder_name(mine.step);
  const fs::path growing = temporary(folder.string(), mine.generation);
  together(group, [&] {
    if (group.rank() != 0) return;
    on_disk([&] {
      remove_leftovers(out, mine.generation, mine.generation);
      fs::create_directory(growing);
    });
  });

  FileMark mark;
  Manifest manifest;
  together(group, [&] {
    mark = write_arrays(growing / rank_file(group.rank(), group.size()), mine.ranks.at(0));
    if (group.rank() != 0) return;
    if (mine.small) return on_disk([&] { write_small(growing, mine, manifest); });
    manifest.files[kModelName] = write_arrays(growing / kModelName, mine.model);
    manifest.files[kOptimizerName] = write_arrays(growing / kOptimizerName, mine.optimizer);
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
      write_manifest(growing / kManifestName, manifest);
      sync_folder(growing);
      put_in_place(growing, folder, mine.generation);
      sync_folder(out);
      remove_superseded(folder, mine);
    });
  });
  return folder;
}

void remove_unfinished_checkpoints(const fs::path& out) {
  on_disk([&] { remove_leftovers(out, 0, UINT32_MAX); });
}

Checkpoint load_checkpoint(Group& group, const fs::path& from, int inside) {
  Checkpoint loaded;
  together(group, [&] {
    const fs::path folder = find_checkpoint(from);
    try {
      on_disk([&] { loaded = read_checkpoint(folder, group.rank(), group.size(), inside); });
    } catch (const DamagedFile& error) {
      throw Error(error.code(), error.what() + fall_back(folder, &error));
    } catch (const Error& error) {
      throw Error(error.code(), error.what() + fall_back(folder));
    }
  });
  return loaded;
}

}  // namespace thinwire
