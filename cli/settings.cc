// Collects settings and their mistakes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace thinwire::cli {

void Written::add(const std::string& key, Result<Setting> setting) {
  if (setting)
    settings.push_back(std::move(setting).value());
  else
    mistakes.push_back({key, setting.status()});
}

void Written::add(Written more) {
  std::ranges::move(more.settings, std::back_inserter(settings));
  std::ranges::move(more.mistakes, std::back_inserter(mistakes));
}

Status Written::status() const {
  if (mistakes.empty()) return Status::ok();
  std::string lines;
  for (const Mistake& mistake : mistakes)
    lines += (lines.empty() ? "" : "\n") + mistake.status.message();
  return Status::fail(mistakes.front().status.code(), lines);
}

}  // namespace thinwire::cli
