// One entry per member of StepReport, Fault and StreamCounters, under its own name.
// SPDX-License-Identifier: Apache-2.0
#include "step_report.h"

#include "option_rows.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

nb::dict counters_row(const StreamCounters& counters, const StreamSpec& stream) {
  nb::dict row;
  row["name"] = to_str(stream.name);
  row["values"] = counters.values;
  row["kept"] = counters.kept;
  row["target"] = counters.target;
  row["payload_bytes"] = counters.payload_bytes;
  row["frame_bytes"] = counters.frame_bytes;
  row["reduced"] = counters.reduced;
  row["dense_frames"] = counters.dense_frames;
  row["rest_norm"] = counters.rest_norm;
  row["gradient_norm"] = counters.gradient_norm;
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
  row["step"] = report.step;
  row["skipped"] = report.skipped;
  row["fault"] = fault_row(report);
  row["dense_bytes"] = report.dense_bytes;
  row["sent_bytes"] = report.sent_bytes;
  row["received_bytes"] = report.received_bytes;
  row["compress_seconds"] = report.compress_seconds;
  row["wire_seconds"] = report.wire_seconds;
  row["decompress_seconds"] = report.decompress_seconds;
  row["wait_seconds"] = report.wait_seconds;
  row["streams"] = rows;
  return row;
}

}  // namespace thinwire::python
