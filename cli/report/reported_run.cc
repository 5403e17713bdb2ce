// Reads metrics.jsonl, summary.json and recipe.toml of a run's folder.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/reported_run.h"

#include <fmt/format.h>
#include <string.h>  // strverscmp

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "cli/json_value.h"
#include "cli/recipe_file.h"
#include "cli/report/run_events.h"
#include "cli/report/step_groups.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostGroups = 600;    // twice as many points of a run's chart at most
constexpr size_t kLeastGroups = 16;    // where runs and columns are many
constexpr size_t kCodecChanges = 200;  // that are listed; all are counted
constexpr size_t kLeaders = 2000;
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kTimes[] = {"fetch",    "compute", "wait",      "update",
                                  "compress", "wire",    "decompress"};

// What is no object tells as little as no file.
Json read_summary(const fs::path& path, RunEvents& events) {
  std::ifstream file(path);
  if (!file) return Json::object();
  Json summary = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (summary.is_object()) return summary;
  events.add(0, "summary.json: holds no JSON object, and is left out");
  return Json::object();
}

// The leaders of global rounds: all, or every second, fourth, ... where there are too many.
class Leaders {
 public:
  void add(uint64_t step, int64_t rank) {
    if (seen_++ % stride_ != 0) return;
    if (kept_.size() == kLeaders) {
      for (size_t i = 0; i < kLeaders / 2; ++i) kept_[i] = kept_[2 * i];
      kept_.resize(kLeaders / 2);
      stride_ *= 2;
    }
    kept_.emplace_back(step, rank);
  }
  Json json() const { return kept_.empty() ? Json::array() : Json(kept_); }

 private:
  uint64_t seen_ = 0;
  uint64_t stride_ = 1;
  std::vector<std::pair<uint64_t, int64_t>> kept_;
};

// The steps and tests of a run, in the order of its file.
class MetricsReader {
 public:
  explicit MetricsReader(RunEvents& events) : events_(events) {}

  // A line that cannot be read is an event, so that one of them does not cost the report of all
  // runs.
  void read(const fs::path& path) {
    std::ifstream file(path);
    if (!file) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
    size_t row = 0;
    for (std::string text; std::getline(file, text);) {
      ++row;
      const bool cut_off = file.eof();  // a line that is being written has no end yet
      if (!add_line(Json::parse(text, nullptr, /*allow_exceptions=*/false)) && !cut_off)
        events_.add_unreadable(row);
    }
  }

  // At most `numbers` in series, but for the least groups that a chart needs.
  void write(Json& run, size_t numbers) {
    run["steps"] = last_step_;
    run["tests"] = tests_;
    run["leaders"] = leaders_.json();
    run["codecs"] = codecs_;
    run["more_codecs"] = more_codecs_;
    std::vector<std::string> columns = steps_.columns();
    if (!any_left_out_) std::erase(columns, "left_out");
    steps_.merge_to(std::max(numbers / (columns.size() + 2), kLeastGroups));
    Json& series = run["series"] = Json::object();
    for (const std::string& column : columns)
      series[column] = is_position(column) ? steps_.last(column) : steps_.means(column);
    series["loss_least"] = steps_.least("loss");
    series["loss_largest"] = steps_.largest("loss");
  }

 private:
  static bool is_position(const std::string& column) {
    return column == "step" || column == "epoch" || column == "seconds" || column == "sent";
  }

  bool add_line(const Json& line) {
    const std::optional<uint64_t> step = step_of(line);
    if (!step) return false;
    line.contains("test_error") ? add_test(line) : add_step(*step, line);
    return true;
  }

  void add_step(uint64_t step, const Json& line) {
    last_step_ = step;
    seconds_ = number(line, "seconds", seconds_);
    sent_ += number(line, "sent_bytes");
    steps_.begin_step();
    steps_.add("step", static_cast<double>(last_step_));
    steps_.add("seconds", seconds_);
    steps_.add("sent", sent_);
    for (const char* key :
         {"epoch", "loss", "learning_rate", "rest_norm", "gradient_norm", "kept_over_target",
          "dense_bytes", "sent_bytes", "inside_bytes", "between_bytes"})
      add(line, key, key);
    for (const char* part : kTimes) add(object(line, "times"), part, std::string("time/") + part);
    const size_t left_out = ranks_left_out(line);
    any_left_out_ |= left_out > 0;
    steps_.add("left_out", static_cast<double>(left_out));
    add_kinds(line);
    add_streams(line);
    add_round(object(line, "round"));
    add_pipeline(object(line, "pipeline"));
    add_codecs(line);
    events_.add_step(step, line);
  }

  // Where they changed, and in the first step.
  void add_codecs(const Json& line) {
    const Json& codecs = object(line, "codecs");
    if (codecs.empty()) return;
    if (codecs_.size() == kCodecChanges) {
      ++more_codecs_;
      return;
    }
    std::string why;
    for (const Json& decision : list(line, "decisions")) why = text(decision, "why");
    Json tensors = Json::object();
    for (const auto& [codec, names] : codecs.items())
      if (names.is_array()) tensors[codec] = names;
    codecs_.push_back({{"step", last_step_}, {"codecs", std::move(tensors)}, {"why", why}});
  }

  void add(const Json& from, const char* key, const std::string& column) {
    const auto found = from.find(key);
    if (found != from.end() && found->is_number()) steps_.add(column, found->get<double>());
  }

  void add_kinds(const Json& line) {
    for (const auto& [name, kind] : object(line, "kinds").items())
      for (const char* key : {"values", "payload_bytes"})
        add(kind, key, fmt::format("kind/{}/{}", name, key));
  }

  void add_streams(const Json& line) {
    for (const Json& stream : list(line, "streams")) {
      const std::string name = text(stream, "stream");
      if (name.empty()) continue;
      for (const char* key :
           {"values", "kept", "target", "payload_bytes", "rest_norm", "gradient_norm"})
        add(stream, key, fmt::format("layer/{}/{}", name, key));
    }
  }

  void add_round(const Json& round) {
    if (round.empty()) return;
    const auto found = round.find("global");
    const bool global = found == round.end() || *found != false;
    add(round, "sent_bytes", global ? "round/global/sent_bytes" : "round/local/sent_bytes");
    add(round, "seconds", global ? "round/global/seconds" : "round/local/seconds");
    if (const auto leader = round.find("leader");
        leader != round.end() && leader->is_number_integer())
      leaders_.add(last_step_, leader->get<int64_t>());
    if (round.contains("ranks"))
      steps_.add("round/attendance", static_cast<double>(list(round, "ranks").size()));
    // Of rounds that overlap steps: by how many steps their values were old when they arrived.
    if (round.contains("begun"))
      steps_.add("round/staleness", number(round, "step", NAN) - number(round, "begun", NAN));
  }

  void add_pipeline(const Json& pipeline) {
    add(pipeline, "idle_share", "pipeline/idle_share");
    for (const Json& boundary : list(pipeline, "boundaries"))
      for (const char* way : {"forward", "backward"})
        for (const char* key : {"values", "payload_bytes"})
          add(object(boundary, way), key,
              fmt::format("boundary/{} after {}/{}", way, text(boundary, "behind", "?"), key));
  }

  void add_test(const Json& line) {
    Json test = {{"step", line["step"]},
                 {"seconds", rounded(seconds_)},
                 {"sent", rounded(sent_)},
                 {"epoch", rounded(number(line, "epoch"))}};
    for (const auto& [from, to] : {std::pair{"test_error", "error"},
                                   {"test_loss", "loss"},
                                   {"hold_out_error", "hold_out_error"},
                                   {"compressed_test_error", "compressed_error"},
                                   {"leader_error", "leader_error"},
                                   {"spread", "spread"}})
      if (const auto found = line.find(from); found != line.end() && found->is_number())
        test[to] = rounded(found->get<double>());
    tests_.push_back(std::move(test));
  }

  RunEvents& events_;
  StepGroups steps_{kMostGroups};
  uint64_t last_step_ = 0;
  double seconds_ = 0;
  double sent_ = 0;  // bytes of rank 0 until the last step
  bool any_left_out_ = false;
  Json tests_ = Json::array();
  Json codecs_ = Json::array();  // tensors by codec, from a step on
  size_t more_codecs_ = 0;
  Leaders leaders_;
};

Json settings_of_run(const Json& summary, const fs::path& recipe) {
  if (const auto found = summary.find("settings"); found != summary.end() && found->is_object())
    return *found;
  Json settings = Json::object();
  if (fs::exists(recipe))
    for (const Setting& setting : read_recipe(recipe.string(), recipe_keys()).settings)
      settings[setting.key] = setting.value;
  return settings;
}

}  // namespace

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kMetrics, error);
}

std::vector<fs::path> begun_runs_in(const fs::path& path) {
  std::error_code error;
  if (is_run(path)) return {path};
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (is_run(entry.path())) found.push_back(entry.path());
  std::sort(found.begin(), found.end(), [](const fs::path& left, const fs::path& right) {
    return strverscmp(left.filename().c_str(), right.filename().c_str()) < 0;
  });
  return found;
}

std::vector<fs::path> runs_in(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> found = begun_runs_in(path);
  if (found.empty())
    throw Error(ErrorCode::kIo,
                fmt::format("{}: {}; name a folder that train, compare or sweep wrote with --out",
                            path.string(),
                            fs::exists(path, error)
                                ? "holds no run: metrics.jsonl is neither here nor one folder below"
                                : "is not there"));
  return found;
}

std::string folder_name(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Json read_run(const fs::path& folder, size_t numbers) {
  RunEvents events;
  const Json summary = read_summary(folder / "summary.json", events);
  Json run = {{"name", folder_name(folder)},
              {"finished", is_true(summary, "finished")},
              {"summary", Json::object()}};
  for (const auto& [key, value] : summary.items())
    if (value.is_primitive()) run["summary"][key] = value;
  run["settings"] = settings_of_run(summary, folder / "recipe.toml");
  MetricsReader metrics(events);
  metrics.read(folder / kMetrics);
  metrics.write(run, numbers);
  events.write(run, run["steps"]);
  return run;
}

}  // namespace thinwire::cli
