// Sound from a WAV file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace thinwire {

// The samples of one channel, -1 .. 1. `origin` names the file in errors. Throws Error(kCorrupt)
// for what is no sound, has another rate or more channels, or holds fewer samples than it says.
std::vector<float> read_wav(std::span<const std::byte> file, int rate, const std::string& origin);

}  // namespace thinwire
