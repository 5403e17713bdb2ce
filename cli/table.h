// A small table of text, for people (aligned columns) and for documents (Markdown).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace thinwire::cli {

// The first column is aligned left, all others right: names, then numbers.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  // REQUIRES: as many cells as headings.
  void add(std::vector<std::string> cells);

  std::string aligned() const;
  std::string markdown() const;

 private:
  std::string row(const std::vector<std::string>& cells, const std::string& separator) const;

  std::vector<std::vector<std::string>> rows_;  // headings first
  std::vector<size_t> widths_;
};

}  // namespace thinwire::cli
