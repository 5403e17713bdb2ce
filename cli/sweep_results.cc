// Reads the summaries of a sweep's runs, computes statistics over seeds, and writes tables.
// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "cli/run_folder.h"
#include "cli/text.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::json;

// Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom; then that of many.
constexpr std::array kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
constexpr double kNormal = 2.131;  // no narrower than for 15: more seeds than that are rare

bool is_error(const std::string& key) {
  return key.starts_with("final_") && key.ends_with("_error");
}

// A loss that is no number is null in a summary.
std::optional<double> figure(const Json& summary, const std::string& key) {
  const auto found = summary.find(key);
  if (found == summary.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Over the runs that have the figure: one that is missing is not 0.
Measured measure_key(const std::vector<const SweepResult*>& results, const std::string& key) {
  std::vector<double> values;
  for (const SweepResult* result : results)
    if (const auto value = figure(result->summary, key)) values.push_back(*value);
  return mean_and_interval(values);
}

// Differences to the run that each is compared with, of the same case and seed, where both have the
// figure.
std::vector<double> paired(const std::vector<const SweepResult*>& results,
                           const std::vector<SweepResult>& all, const std::string& key) {
  std::vector<double> differences;
  for (const SweepResult* one : results)
    for (const SweepResult& other : all)
      if (other.run->variant == one->run->compared_with &&
          other.run->of_case == one->run->of_case && other.run->seed == one->run->seed &&
          &other != one)
        if (const auto mine = figure(one->summary, key), its = figure(other.summary, key);
            mine && its)
          differences.push_back(*mine - *its);
  return differences;
}

// Of any run: the first may lack one that others have.
std::set<std::string> error_keys_of(const std::vector<const SweepResult*>& results) {
  std::set<std::string> keys;
  for (const SweepResult* result : results)
    for (const auto& [key, value] : result->summary.items())
      if (is_error(key) && value.is_number()) keys.insert(key);
  return keys;
}

std::string points(const Measured& share) {
  if (!share.half_interval) return fmt::format("{:.2f}", 100 * share.mean);
  return fmt::format("{:.2f} ± {:.2f}", 100 * share.mean, 100 * *share.half_interval);
}

// "final_hold_out_error": "hold out error %".
std::string heading_of(std::string key, const char* unit) {
  key = key.substr(std::string("final_").size());
  std::replace(key.begin(), key.end(), '_', ' ');
  return key + unit;
}

std::vector<std::string> error_keys(const std::vector<SweepRow>& rows) {
  std::vector<std::string> keys;
  for (const SweepRow& row : rows)
    for (const auto& [key, value] : row.errors)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  return keys;
}

std::string cell(const std::vector<std::pair<std::string, Measured>>& all, const std::string& key) {
  for (const auto& [name, value] : all)
    if (name == key) return points(value);
  return "";
}

std::string variant_of(const SweepRow& row) {
  return row.variant.empty() ? "the recipe" : row.variant;
}

std::string row_name(const SweepRow& row) {
  return row.of_case.empty() ? variant_of(row) : row.of_case + ", " + variant_of(row);
}

Json measured_json(const Measured& measured) {
  Json json = {{"mean", measured.mean}, {"count", measured.count}};
  if (measured.half_interval) json["half_interval"] = *measured.half_interval;
  return json;
}

std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('"', at)) != text.npos; at += 2) text.insert(at, 1, '"');
  return '"' + text + '"';
}

}  // namespace

std::optional<Json> finished_summary(const std::string& path, const SweepRun& run,
                                     std::string& difference) {
  difference.clear();
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return std::nullopt;
  std::ifstream file(path);
  Json summary = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object() || !summary.contains("settings") || !summary["settings"].is_object())
    return std::nullopt;
  const auto finished = summary.find("finished");
  if (finished == summary.end() || *finished != true) return std::nullopt;
  const Json& settings = summary["settings"];
  difference = first_difference(
      [&](std::string_view key) -> std::optional<std::string> {
        const bool stayed =
            !summary.contains("lost_workers") && !summary.contains("joined_workers");
        if (key == "run.workers" && stayed)  // those that there were
          return std::to_string(static_cast<int>(figure(summary, "world_size").value_or(0)));
        const auto found = settings.find(std::string(key));
        if (found == settings.end() || !found->is_string()) return std::nullopt;
        return found->get<std::string>();
      },
      run.recipe);
  if (!difference.empty()) return std::nullopt;
  return summary;
}

Measured mean_and_interval(const std::vector<double>& values) {
  Measured measured{.count = values.size(), .mean = 0, .half_interval = {}};
  const auto count = static_cast<double>(values.size());
  for (const double value : values) measured.mean += value / count;
  if (values.size() < 2) return measured;
  double squares = 0;
  for (const double value : values) squares += (value - measured.mean) * (value - measured.mean);
  const size_t freedom = values.size() - 1;
  const double t = freedom <= kStudent.size() ? kStudent[freedom - 1] : kNormal;
  measured.half_interval = t * std::sqrt(squares / static_cast<double>(freedom) / count);
  return measured;
}

std::vector<SweepRow> rows_of(const Sweep& sweep, const std::vector<SweepResult>& results,
                              const std::vector<SweepFailure>& failures) {
  std::vector<SweepRow> rows;
  std::set<std::pair<std::string, std::string>> seen;
  for (const SweepRun& run : sweep.runs) {
    if (!seen.emplace(run.of_case, run.variant).second) continue;
    std::vector<const SweepResult*> own;
    for (const SweepResult& result : results)
      if (result.run->of_case == run.of_case && result.run->variant == run.variant)
        own.push_back(&result);
    std::vector<SweepFailure> failed;
    for (const SweepFailure& failure : failures)
      if (failure.run->of_case == run.of_case && failure.run->variant == run.variant)
        failed.push_back(failure);
    if (own.empty() && failed.empty()) continue;
    SweepRow row{.of_case = run.of_case,
                 .variant = run.variant,
                 .runs = {},
                 .kept = {},
                 .seeds = {},
                 .failures = std::move(failed),
                 .errors = {},
                 .differences = {},
                 .sent_bytes_per_step = measure_key(own, "sent_bytes_per_step"),
                 .wire_ratio = measure_key(own, "wire_ratio"),
                 .codec_ratio = measure_key(own, "codec_ratio"),
                 .seconds = measure_key(own, "seconds")};
    for (const SweepResult* one : own) {
      row.runs.push_back(one->run->name);
      if (one->kept) row.kept.push_back(one->run->name);
      row.seeds.push_back(one->run->seed);
    }
    for (const std::string& key : error_keys_of(own)) {
      row.errors.emplace_back(key, measure_key(own, key));
      const auto differences = paired(own, results, key);
      if (!differences.empty()) row.differences.emplace_back(key, mean_and_interval(differences));
    }
    // The test's comes first, whatever the others are called.
    const auto test_first = [](const auto& one) { return one.first == "final_test_error"; };
    std::stable_partition(row.errors.begin(), row.errors.end(), test_first);
    rows.push_back(std::move(row));
  }
  return rows;
}

Table table_of(const std::vector<SweepRow>& rows) {
  const auto keys = error_keys(rows);
  bool cases = false, differences = false;
  for (const SweepRow& row : rows) {
    cases |= !row.of_case.empty();
    differences |= !row.differences.empty();
  }
  std::vector<std::string> headings;
  if (cases) headings.push_back("case");
  headings.insert(headings.end(), {"variant", "seeds"});
  for (const std::string& key : keys) {
    headings.push_back(heading_of(key, " %"));
    if (differences) headings.push_back("difference in points");
  }
  headings.insert(headings.end(),
                  {"bytes per step and rank", "wire ratio", "codec ratio", "seconds"});
  Table table(headings);
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells;
    if (cases) cells.push_back(row.of_case);
    cells.push_back(variant_of(row));
    cells.push_back(row.failures.empty()
                        ? std::to_string(row.seeds.size())
                        : fmt::format("{} ({} failed)", row.seeds.size(), row.failures.size()));
    for (const std::string& key : keys) {
      cells.push_back(cell(row.errors, key));
      if (differences) cells.push_back(cell(row.differences, key));
    }
    const auto add = [&](const Measured& measured, const auto& text_of) {
      cells.push_back(measured.count == 0 ? "" : text_of(measured.mean));
    };
    add(row.sent_bytes_per_step,
        [](double bytes) { return with_thousands(static_cast<uint64_t>(std::llround(bytes))); });
    add(row.wire_ratio, ratio);
    add(row.codec_ratio, ratio);
    add(row.seconds, [](double seconds) { return fmt::format("{:.0f}", seconds); });
    table.add(cells);
  }
  return table;
}

std::vector<std::string> failures_of(const std::vector<SweepRow>& rows) {
  std::vector<std::string> lines;
  for (const SweepRow& row : rows) {
    std::vector<std::pair<std::string, std::vector<std::string>>> runs_of;  // by reason
    for (const SweepFailure& failure : row.failures) {
      auto found = std::find_if(runs_of.begin(), runs_of.end(),
                                [&](const auto& one) { return one.first == failure.reason; });
      if (found == runs_of.end()) found = runs_of.insert(runs_of.end(), {failure.reason, {}});
      found->second.push_back(failure.run->name);
    }
    const std::string name = row_name(row);
    for (const auto& [reason, runs] : runs_of)
      lines.push_back(
          fmt::format("{}, {} failed ({}): {}", name, runs.size(), join(runs, ", "), reason));
  }
  return lines;
}

nlohmann::ordered_json json_of(const std::vector<SweepRow>& rows) {
  auto all = nlohmann::ordered_json::array();
  for (const SweepRow& row : rows) {
    nlohmann::ordered_json json = {
        {"case", row.of_case}, {"variant", row.variant}, {"seeds", row.seeds}, {"runs", row.runs}};
    if (!row.kept.empty()) json["kept"] = row.kept;
    for (const auto& [key, value] : row.errors) json[key] = measured_json(value);
    for (const auto& [key, value] : row.differences)
      json[key + "_difference"] = measured_json(value);
    for (const SweepFailure& failure : row.failures)
      json["failed"].push_back(
          nlohmann::ordered_json{{"run", failure.run->name}, {"reason", failure.reason}});
    for (const auto& [key, measured] :
         {std::pair("sent_bytes_per_step", &row.sent_bytes_per_step),
          std::pair("wire_ratio", &row.wire_ratio), std::pair("codec_ratio", &row.codec_ratio),
          std::pair("seconds", &row.seconds)})
      if (measured->count > 0) json[key] = measured_json(*measured);
    all.push_back(std::move(json));
  }
  return all;
}

std::string csv_of(const std::vector<SweepResult>& results) {
  std::set<std::string> keys;
  for (const SweepResult& result : results)
    for (const auto& [key, value] : result.summary.items())
      if (value.is_number()) keys.insert(key);
  std::string text = "run,case,variant,seed";
  for (const std::string& key : keys) text += ',' + key;
  text += '\n';
  for (const SweepResult& result : results) {
    text += fmt::format("{},{},{},{}", quoted(result.run->name), quoted(result.run->of_case),
                        quoted(result.run->variant), result.run->seed);
    for (const std::string& key : keys) {
      const auto value = result.summary.find(key);
      text += ',' + (value == result.summary.end() ? "" : value->dump());
    }
    text += '\n';
  }
  return text;
}

}  // namespace thinwire::cli
