// Absentees: counts in how many steps in a row a rank is left out.
// SPDX-License-Identifier: Apache-2.0
#include "train/absentees.h"

namespace thinwire {

std::vector<std::string> Absentees::add(const StepReport& report) {
  std::vector<std::string> lines;
  std::map<int, std::string> now;
  for (const int rank : report.unchosen) now[rank] = "the rule's choice";
  for (const LeftOut& left_out : report.left_out) {
    now[left_out.rank] = to_string(left_out.why);
    if (known_.emplace(left_out.rank, left_out.why).second)
      lines.push_back("step " + std::to_string(report.step) + ": " + describe(left_out));
  }
  if (!report.skipped)
    std::erase_if(in_a_row_, [&](const auto& row) { return !now.contains(row.first); });
  for (const auto& [rank, why] : now)
    if (++in_a_row_[rank] == kConstantly && named_.insert(rank).second)
      lines.push_back("rank " + std::to_string(rank) + " is left out constantly: of " +
                      std::to_string(kConstantly) + " steps in a row, now for " + why);
  return lines;
}

}  // namespace thinwire
