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

// The number under `key`, or `otherwise` where there is none.
double number(const nlohmann::json& object, const char* key, double otherwise = 0);

// The run in `folder` as one JSON object; the keys are those that page.js reads. A long run is
// shown in at most twice `groups` groups of steps. A run that still goes on can be read: its last
// line may be cut off. Throws kIo or kCorrupt, naming file and line.
nlohmann::json read_run(const std::filesystem::path& folder, size_t groups);

}  // namespace thinwire::cli
