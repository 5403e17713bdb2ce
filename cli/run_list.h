// The list of runs that a sweep or a comparison makes, which tells watchers when all have ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace thinwire::cli {

// runs.json, while the runs are made. A list that cannot be written is done without: the runs' own
// files say what is wrong with the folder.
class RunList {
 public:
  // Names of folders inside `folder`, which is made.
  RunList(std::filesystem::path folder, std::vector<std::string> runs);
  RunList(const RunList&) = delete;
  RunList& operator=(const RunList&) = delete;
  // Writes that no other run begins: all are finished, some failed, or the user stopped them.
  ~RunList();

 private:
  void write(bool ended) const;

  std::filesystem::path folder_;
  std::vector<std::string> runs_;
};

struct ListedRuns {
  std::vector<std::string> runs;
  bool ended = false;  // none of them goes on, and none begins
};

// What the list in `folder` says; empty where there is none.
std::optional<ListedRuns> listed_runs(const std::filesystem::path& folder);

}  // namespace thinwire::cli
