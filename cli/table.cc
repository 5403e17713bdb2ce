// Table: column widths grow as rows are added, and rendering pads to them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <algorithm>

#include "cli/text.h"
#include "thinwire/status.h"

namespace thinwire::cli {

Table::Table(std::vector<std::string> headings) : widths_(headings.size()) {
  add(std::move(headings));
}

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != widths_.size()) throw Error(ErrorCode::kContract, "table: uneven row");
  for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], columns(cells[i]));
  rows_.push_back(std::move(cells));
}

std::string Table::row(const std::vector<std::string>& cells, const std::string& separator) const {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string pad(widths_[i] - columns(cells[i]), ' ');
    text += (i == 0 ? "" : separator) + (i == 0 ? cells[i] + pad : pad + cells[i]);
  }
  return text;
}

std::string Table::aligned() const {
  std::string text;
  for (size_t i = 0; i < rows_.size(); ++i) {
    text += "  " + row(rows_[i], "   ") + "\n";
    if (i > 0) continue;
    std::vector<std::string> rule;
    for (const size_t width : widths_) rule.emplace_back(width, '-');
    text += "  " + row(rule, "   ") + "\n";
  }
  return text;
}

std::string Table::markdown() const {
  std::string text;
  for (size_t i = 0; i < rows_.size(); ++i) {
    text += "| " + row(rows_[i], " | ") + " |\n";
    if (i > 0) continue;
    text += "|";
    for (size_t c = 0; c < widths_.size(); ++c)
      text += std::string(widths_[c] + (c == 0 ? 2 : 1), '-') + (c == 0 ? "|" : ":|");
    text += "\n";
  }
  return text;
}

}  // namespace thinwire::cli
