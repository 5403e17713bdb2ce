// Files that are still there after a power cut, and folders that appear whole or not at all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace thinwire {

// Writes a new file and waits until it is on the disk. Throws Error(kIo) naming the path.
void write_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// The same under a temporary name first, so that the path has either its old content or the new.
void replace_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Waits until what was written to a file is on the disk. Throws Error(kIo).
void sync_file(const std::filesystem::path& path);

// Waits until a folder's entries are on the disk. Throws Error(kIo).
void sync_folder(const std::filesystem::path& path);

// The whole file. Throws Error(kIo) naming the path.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace thinwire
