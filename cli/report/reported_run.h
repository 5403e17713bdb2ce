// What a report shows of a run, read from the files that the run wrote.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace thinwire::cli {

// Whether the folder is that of a run that has begun: it holds metrics.jsonl.
bool is_run(const std::filesystem::path& folder);

// The runs that `path` stands for: itself if it is one, else those in the folders directly inside,
// in the order of their names, numbers by value.
std::vector<std::filesystem::path> begun_runs_in(const std::filesystem::path& path);

// The same. Throws kIo, naming the folder, if there is none.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& path);

// The name of a folder, however it was written: "build/demo/" is called "demo".
std::string folder_name(const std::filesystem::path& folder);

// The run in `folder` as one JSON object; the keys are those that page.js reads. A long run is
// shown in at most 1,200 groups of steps, and in fewer where all its columns would have more than
// `numbers` numbers, but not in fewer than 9 if it has so many steps. A run that still goes on can
// be read: its last line may be cut off. Other lines of no step or test are counted among the
// events. Throws kIo where there is no metrics.jsonl.
nlohmann::json read_run(const std::filesystem::path& folder, size_t numbers);

}  // namespace thinwire::cli
