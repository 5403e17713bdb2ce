// The folders in which the files of a data set are searched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

// Where systems install data sets, and where thinwire keeps its own; existing or not.
std::vector<std::filesystem::path> shared_roots();

// The folders to look in, best first: below the user's data folder under each of the names (or that
// folder itself, if it is called so), where systems install data sets, and thinwire's own. Only
// those that exist.
std::vector<std::filesystem::path> data_folders(const std::string& user_folder,
                                                std::span<const std::string_view> names);

// The same list, existing or not, for a message: "a, b".
std::string describe_places(const std::string& user_folder,
                            std::span<const std::string_view> names);

// `folder`/`file`, or the same with .gz or .xz behind; empty if there is none.
std::filesystem::path find_packed(const std::filesystem::path& folder, std::string_view file);

}  // namespace thinwire
