// Converts the options of exchanges between Python's dictionaries and C++.
// SPDX-License-Identifier: Apache-2.0
#include "exchange_options.h"

#include <optional>
#include <string>
#include <vector>

namespace py = pybind11;

namespace thinwire::python {
namespace {

// Four times the values of a chunk elsewhere: every message costs more here.
constexpr size_t kChunkValues = size_t{1} << 17;

// Of an exchange or a rule: both have these.
template <typename Setting>
void read_setting(const py::dict& given, Setting& setting) {
  setting.codec = given["codec"].cast<std::string>();
  setting.feedback = given["feedback"].cast<std::string>();
  setting.method = given["method"].cast<std::string>();
  setting.grouping = parse_grouping(given["grouping"].cast<std::string>()).value();
}

template <typename Setting>
py::dict setting_to_dict(const Setting& setting) {
  py::dict row;
  row["codec"] = setting.codec;
  row["feedback"] = setting.feedback;
  row["method"] = setting.method;
  row["grouping"] = setting.grouping ? std::string(to_string(*setting.grouping)) : "auto";
  return row;
}

}  // namespace

ExchangeOptions exchange_options_of(const py::dict& given) {
  ExchangeOptions options;
  read_setting(given, options);
  for (const py::handle one : given["rules"]) {
    const auto row = py::cast<py::dict>(one);
    read_setting(row, options.rules.emplace_back());
    options.rules.back().pattern = row["pattern"].cast<std::string>();
  }
  options.combine = given["combine"].cast<std::string>();
  options.chunk_values = kChunkValues;
  options.bucket_bytes = given["bucket_kb"].cast<size_t>() * 1024;
  options.seed = given["seed"].cast<uint64_t>();
  options.steps_per_epoch = given["steps_per_epoch"].cast<uint64_t>();
  options.max_skipped = given["max_skipped"].cast<int>();
  options.norms = given["norms"].cast<bool>();
  options.weighted = given["weighted"].cast<bool>();
  options.inside = given["inside"].cast<int>();
  if (given.contains("owners")) {
    options.owners = given["owners"].cast<std::vector<int>>();
    options.results = Results::kShard;
  }
  if (given.contains("debts")) options.debts = given["debts"].cast<bool>();
  if (given.contains("hold")) options.hold = given["hold"].cast<bool>();
  if (given.contains("columns")) options.columns = given["columns"].cast<int>();
  return options;
}

py::dict dict_of(const ExchangeOptions& options) {
  py::dict row = setting_to_dict(options);
  row["steps_per_epoch"] = options.steps_per_epoch;
  py::list rules;
  for (const TensorRule& rule : options.rules) {
    py::dict one = setting_to_dict(rule);
    one["pattern"] = rule.pattern;
    rules.append(one);
  }
  row["rules"] = rules;
  return row;
}

}  // namespace thinwire::python
