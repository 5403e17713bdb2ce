// Absentees: what the log says of ranks whose values results lack.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {

class Absentees {
 public:
  // A rank is left out constantly, if a fault or the rule leaves it out of so many steps in a row.
  static constexpr uint64_t kConstantly = 50;

  // Lines for the log: the first step that lacks a rank for a fault, and, once, that a rank is left
  // out constantly.
  std::vector<std::string> add(const StepReport& report);

 private:
  std::set<std::pair<int, LeftOutFor>> known_;
  std::map<int, uint64_t> in_a_row_;
  std::set<int> named_;
};

}  // namespace thinwire
