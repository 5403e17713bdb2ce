// One subject at several numbers of ranks: times, and bytes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "cli/plan_table.h"
#include "cli/plan_words.h"
#include "cli/table.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

// Codecs of the first plan, and of each the cell that `cell` makes at every number of ranks.
Table scale_table(const std::vector<PlanTable>& plans,
                  const std::function<std::string(const PlanTable&, const PlanRow&)>& cell) {
  std::vector<std::string> headings = {"ranks"};
  for (const PlanTable& plan : plans) headings.push_back(std::to_string(plan.request.ranks));
  Table table(std::move(headings));
  for (const PlanRow& first : plans.front().rows) {
    std::vector<std::string> cells = {first.codec};
    for (const PlanTable& plan : plans) {
      const auto row = std::find_if(plan.rows.begin(), plan.rows.end(),
                                    [&](const PlanRow& one) { return one.codec == first.codec; });
      cells.push_back(row == plan.rows.end() ? "" : cell(plan, *row));
    }
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace

std::string scale_text(const std::vector<PlanTable>& plans) {
  const PlanTable& first = plans.front();
  std::string text = fmt::format("{}, {}", head_of(first), to_string(first.request.link));
  if (first.request.per_machine > 1)
    text += fmt::format(" between machines of {} ranks, {} inside", first.request.per_machine,
                        to_string(first.request.inside));
  text += fmt::format("; computation {}\n\nMilliseconds per step:\n\n", first.measured_by);
  const auto computation = [](const PlanTable& plan) {
    return milliseconds(plan.timeline.compute_seconds);
  };
  Table times = scale_table(plans, [](const PlanTable& /*plan*/, const PlanRow& row) {
    return milliseconds(row.step.seconds);
  });
  std::vector<std::string> last = {"computation alone"};
  for (const PlanTable& plan : plans) last.push_back(computation(plan));
  times.add(std::move(last));
  text += times.aligned() + "\nBytes per step, of the rank that sends most:\n\n";
  text += scale_table(plans, [](const PlanTable& /*plan*/, const PlanRow& row) {
            return bytes_text(row.step, row.step.busiest_bytes());
          }).aligned();
  text +=
      "\nOne rank of each kind was simulated, with the messages that the exchange's own code lays "
      "out for\n"
      "so many ranks; all others are taken to do the same at the same time. No switch between "
      "them\n"
      "is ever full, and no rank is late.\n";
  return text + basis_of(first);
}

}  // namespace thinwire::cli
