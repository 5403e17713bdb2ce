// StepGroups: adds the steps of a run to groups, and merges neighbouring groups when there are too
// many.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/step_groups.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace thinwire::cli {

void StepGroups::Cell::add(const Cell& later) {
  if (later.count == 0) return;
  least = count == 0 ? later.least : std::min(least, later.least);
  largest = count == 0 ? later.largest : std::max(largest, later.largest);
  last = later.last;
  sum += later.sum;
  count += later.count;
}

void StepGroups::begin_step() {
  if (steps_ == groups_ * width_) {
    if (groups_ == 2 * most_) halve();
    ++groups_;
  }
  ++steps_;
}

void StepGroups::add(const std::string& column, double value) {
  if (groups_ == 0 || !std::isfinite(value)) return;
  std::vector<Cell>& cells = cells_[column];
  cells.resize(groups_);
  cells.back().add({.count = 1, .sum = value, .least = value, .largest = value, .last = value});
}

void StepGroups::halve() {
  for (auto& [name, cells] : cells_) {
    for (size_t i = 0; i < cells.size(); i += 2) {
      Cell both = cells[i];
      if (i + 1 < cells.size()) both.add(cells[i + 1]);
      cells[i / 2] = both;
    }
    cells.resize((cells.size() + 1) / 2);
  }
  groups_ = (groups_ + 1) / 2;
  width_ *= 2;
}

void StepGroups::merge_to(size_t groups) {
  while (groups_ > groups) halve();
}

template <typename Value>
nlohmann::json StepGroups::list(const std::string& column, const Value& value) const {
  auto all = nlohmann::json::array();
  const auto found = cells_.find(column);
  for (size_t i = 0; i < groups_; ++i) {
    const bool present =
        found != cells_.end() && i < found->second.size() && found->second[i].count > 0;
    all.push_back(present ? rounded(value(found->second[i])) : nlohmann::json());
  }
  return all;
}

nlohmann::json StepGroups::means(const std::string& column) const {
  return list(column, [](const Cell& cell) { return cell.sum / static_cast<double>(cell.count); });
}
nlohmann::json StepGroups::least(const std::string& column) const {
  return list(column, [](const Cell& cell) { return cell.least; });
}
nlohmann::json StepGroups::largest(const std::string& column) const {
  return list(column, [](const Cell& cell) { return cell.largest; });
}
nlohmann::json StepGroups::last(const std::string& column) const {
  return list(column, [](const Cell& cell) { return cell.last; });
}

std::vector<std::string> StepGroups::columns() const {
  std::vector<std::string> names;
  for (const auto& [name, cells] : cells_) names.push_back(name);
  return names;
}

nlohmann::json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.5g", value);
  const double shorter = std::strtod(digits, nullptr);
  if (shorter == std::floor(shorter) && std::fabs(shorter) < 1e15)
    return static_cast<int64_t>(shorter);
  return shorter;
}

}  // namespace thinwire::cli
