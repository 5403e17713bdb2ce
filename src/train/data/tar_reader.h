// Regular files in a tar archive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace thinwire {

struct TarFile {
  std::string name;                    // with its folders
  std::span<const std::byte> content;  // part of the archive
};

// All regular files of an archive (ustar; other kinds of entries are passed over), in its order.
// `origin` names the archive in errors. Throws Error(kCorrupt).
std::vector<TarFile> read_tar(std::span<const std::byte> archive, const std::string& origin);

}  // namespace thinwire
