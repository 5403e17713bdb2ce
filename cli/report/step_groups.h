// StepGroups: the values of a long run, in a bounded number of groups of successive steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace thinwire::cli {

// All groups but the last hold the same number of steps, a power of two. There are never more than
// twice `most` groups: when one more would begin, each two neighbours become one.
class StepGroups {
 public:
  explicit StepGroups(size_t most) : most_(most) {}

  void begin_step();
  // Of the step that began last. Values that are not finite count as missing.
  void add(const std::string& column, double value);

  // Merges neighbours until there are at most so many groups; then no other step may begin.
  // REQUIRES: groups > 0.
  void merge_to(size_t groups);

  size_t steps() const noexcept { return steps_; }
  size_t groups() const noexcept { return groups_; }

  // One number for each group, null where the group has no value of the column; five significant
  // digits.
  nlohmann::json means(const std::string& column) const;
  nlohmann::json least(const std::string& column) const;
  nlohmann::json largest(const std::string& column) const;
  nlohmann::json last(const std::string& column) const;

  std::vector<std::string> columns() const;

 private:
  struct Cell {
    uint64_t count = 0;
    double sum = 0;
    double least = 0;
    double largest = 0;
    double last = 0;

    void add(const Cell& later);
  };

  template <typename Value>
  nlohmann::json list(const std::string& column, const Value& value) const;
  void halve();

  const size_t most_;
  size_t width_ = 1;  // steps of a group
  size_t steps_ = 0;
  size_t groups_ = 0;
  std::map<std::string, std::vector<Cell>>
      cells_;  // a column ends with the last group that has a value of it
};

// `value` with five significant digits, which is what a chart shows; null if it is not finite.
nlohmann::json rounded(double value);

}  // namespace thinwire::cli
