// The report's page: one HTML file that needs nothing else when it is opened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace thinwire::cli {

// What `thinwire influence` writes into the folder of a run; the report links it.
inline constexpr const char* kInfluencePage = "influence.html";

// `runs` is an array of what read_run gives.
std::string report_page(const std::string& title, const nlohmann::json& runs);

// Reads the runs in these folders, each of which is there once, and writes their report to `path`.
// Runs whose folders have the same name are told apart by the folders above. Pages of influence in
// these folders are linked, from where `path` is. Throws as read_run does, and kIo where the file
// cannot be written.
void write_report(const std::vector<std::filesystem::path>& runs, const std::string& title,
                  const std::filesystem::path& path);

// The same for all runs in the folder `out`, to report.html there, as the last act of a command
// whose results are on disk already: a failure is said on stderr, and the command goes on. Returns
// whether there is a page.
bool add_report(const std::filesystem::path& out, const std::string& title);

}  // namespace thinwire::cli
