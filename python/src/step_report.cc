// Step reports as dictionaries: an entry per member of StepReport, Fault and StreamCounters.
// SPDX-License-Identifier: Apache-2.0
#include "step_report.h"

#include <nanobind/stl/string.h>

#include "option_rows.h"
#include "report_members.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

nb::dict counters_row(const StreamCounters& counters, const StreamSpec& stream) {
  nb::dict row;
  row["name"] = to_str(stream.name);
  each_counter(counters, [&](const char* name, const auto& value) { row[name] = nb::cast(value); });
  return row;
}

nb::object fault_row(const StepReport& report) {
  if (!report.skipped) return nb::none();
  nb::dict row;
  row["code"] = to_str(to_string(report.fault.code));
  row["rank"] = report.fault.rank;
  row["stream"] = to_str(report.fault.stream);
  return row;
}

}  // namespace

Row report_row(const StepReport& report, const std::vector<StreamSpec>& streams) {
  nb::list rows;
  for (size_t i = 0; i < report.streams.size() && i < streams.size(); ++i)
    rows.append(counters_row(report.streams[i], streams[i]));
  Row row;
  each_total(report, [&](const char* name, auto value) { row[name] = value; });
  row["fault"] = fault_row(report);
  nb::list left_out, unchosen;
  for (const LeftOut& one : report.left_out)
    left_out.append(nb::make_tuple(one.rank, to_str(to_string(one.why))));
  for (const int rank : report.unchosen) unchosen.append(rank);
  row["left_out"] = left_out;
  row["unchosen"] = unchosen;
  row["streams"] = rows;
  return row;
}

}  // namespace thinwire::python
