// Reads the WAV files of spoken digits from a folder or a tar archive.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/recordings.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "thinwire/status.h"
#include "train/data/compressed_file.h"
#include "train/data/tar_reader.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

std::vector<Recording> read_folder(const std::string& path) {
  std::vector<Recording> recordings;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".wav")
      recordings.push_back({entry.path().filename().string(), read_file(entry.path().string())});
  }
  if (error) throw Error(ErrorCode::kIo, path + ": " + error.message());
  return recordings;
}

std::vector<Recording> read_archive(const std::string& path) {
  std::vector<Recording> recordings;
  const std::vector<std::byte> archive = read_file(path);
  for (const TarFile& file : read_tar(archive, path)) {
    const fs::path name(file.name);
    if (name.extension() == ".wav")
      recordings.push_back({name.filename().string(), {file.content.begin(), file.content.end()}});
  }
  return recordings;
}

}  // namespace

std::vector<Recording> read_recordings(const std::string& path) {
  std::error_code error;
  std::vector<Recording> recordings =
      fs::is_directory(path, error) ? read_folder(path) : read_archive(path);
  if (recordings.empty()) throw Error(ErrorCode::kCorrupt, path + ": holds no wav files");
  std::ranges::sort(recordings, {}, &Recording::name);
  return recordings;
}

RecordingName parse_recording_name(const std::string& name) {
  const size_t first = name.find('_');
  const size_t last = name.rfind('_');
  const size_t dot = name.rfind(".wav");
  RecordingName parsed;
  if (first == 1 && last > first && dot != std::string::npos && dot > last && name[0] >= '0' &&
      name[0] <= '9') {
    parsed.digit = name[0] - '0';
    parsed.speaker = name.substr(first + 1, last - first - 1);
    const char* end = name.data() + dot;
    const auto [stop, error] = std::from_chars(name.data() + last + 1, end, parsed.index);
    if (error == std::errc() && stop == end && parsed.index >= 0) return parsed;
  }
  throw Error(ErrorCode::kCorrupt, name + ": not called {digit}_{speaker}_{index}.wav");
}

}  // namespace thinwire
