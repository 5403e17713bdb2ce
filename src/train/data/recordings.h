// The Free Spoken Digit Dataset's files, from its folder or from an archive of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace thinwire {

// One wav file, {digit}_{speaker}_{index}.wav.
struct Recording {
  std::string name;
  std::vector<std::byte> file;
};

// All wav files in a folder, or in a tar archive that may be packed, by name. Throws Error kIo or
// kCorrupt; finding none is kCorrupt.
std::vector<Recording> read_recordings(const std::string& path);

// What a recording's name says. Throws Error(kCorrupt) when it does not follow the scheme.
struct RecordingName {
  int digit = 0;
  std::string speaker;
  int index = 0;
};
RecordingName parse_recording_name(const std::string& name);

}  // namespace thinwire
