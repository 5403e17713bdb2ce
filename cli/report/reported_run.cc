// Reads metrics.jsonl, summary.json and recipe.toml of a run's folder.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/reported_run.h"

#include <fmt/format.h>
#include <string.h>  // strverscmp

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "cli/recipe_file.h"
#include "cli/report/step_groups.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kEvents = 200;  // skipped steps and lost workers that are listed; all are counted
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kTimes[] = {"fetch",    "compute", "wait",      "update",
                                  "compress", "wire",    "decompress"};

Json read_summary(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return Json::object();
  Json summary = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object())
    throw Error(ErrorCode::kCorrupt, path.string() + ": holds no JSON object");
  return summary;
}

// The steps and tests of a run, in the order of its file.
class MetricsReader {
 public:
  explicit MetricsReader(size_t groups) : steps_(groups) {}

  void read(const fs::path& path) {
    std::ifstream file(path);
    if (!file) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
    size_t row = 0;
    for (std::string text; std::getline(file, text);) {
      ++row;
      const bool cut_off = file.eof();  // a line that is being written has no end yet
      const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!add_line(line) && !cut_off)
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{}:{}: is no line of a step or test", path.string(), row));
    }
  }

  void write(Json& run) {
    run["steps"] = last_step_;
    run["skipped"] = skipped_;
    run["tests"] = tests_;
    for (const auto& [rank, reasons] : left_out_) {
      std::string text;
      for (const auto& [why, steps] : reasons)
        text += fmt::format("{}{} of {} steps for {}", text.empty() ? "" : ", ", steps, last_step_,
                            why);
      add_event(fmt::format("rank {} left out: {}", rank, text));
    }
    run["events"] = events_;
    run["leaders"] = leaders_;
    run["codecs"] = codecs_;
    Json& series = run["series"] = Json::object();
    for (const std::string& column : steps_.columns())
      series[column] = is_position(column) ? steps_.last(column) : steps_.means(column);
    series["loss_least"] = steps_.least("loss");
    series["loss_largest"] = steps_.largest("loss");
  }

 private:
  static bool is_position(const std::string& column) {
    return column == "step" || column == "epoch" || column == "seconds" || column == "sent";
  }

  bool add_line(const Json& line) try {
    if (!line.is_object() || !line.contains("step")) return false;
    line.contains("test_error") ? add_test(line) : add_step(line);
    return true;
  } catch (const Json::exception&) {  // a value of another type
    return false;
  }

  void add_step(const Json& line) {
    last_step_ = static_cast<uint64_t>(number(line, "step"));
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
    if (const auto times = line.find("times"); times != line.end())
      for (const char* part : kTimes) add(*times, part, std::string("time/") + part);
    add_kinds(line);
    add_streams(line);
    add_round(line);
    add_pipeline(line);
    add_codecs(line);
    add_events(line);
  }

  // Where they changed, and in the first step.
  void add_codecs(const Json& line) {
    const auto codecs = line.find("codecs");
    if (codecs == line.end() || !codecs->is_object() || codecs_.size() >= kEvents) return;
    std::string why;
    for (const Json& decision : line.value("decisions", Json::array()))
      why = decision.value("why", "");
    codecs_.push_back({{"step", last_step_}, {"codecs", *codecs}, {"why", why}});
  }

  void add(const Json& object, const char* key, const std::string& column) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_number()) steps_.add(column, found->get<double>());
  }

  void add_kinds(const Json& line) {
    const auto kinds = line.find("kinds");
    if (kinds == line.end() || !kinds->is_object()) return;
    for (const auto& [name, kind] : kinds->items())
      for (const char* key : {"values", "payload_bytes"})
        add(kind, key, fmt::format("kind/{}/{}", name, key));
  }

  void add_streams(const Json& line) {
    const auto streams = line.find("streams");
    if (streams == line.end() || !streams->is_array()) return;
    for (const Json& stream : *streams) {
      const auto name = stream.find("stream");
      if (name == stream.end() || !name->is_string()) continue;
      for (const char* key :
           {"values", "kept", "target", "payload_bytes", "rest_norm", "gradient_norm"})
        add(stream, key, fmt::format("layer/{}/{}", name->get<std::string>(), key));
    }
  }

  void add_round(const Json& line) {
    const auto round = line.find("round");
    if (round == line.end() || !round->is_object()) return;
    const bool global = round->value("global", true);
    add(*round, "sent_bytes", global ? "round/global/sent_bytes" : "round/local/sent_bytes");
    add(*round, "seconds", global ? "round/global/seconds" : "round/local/seconds");
    if (const auto leader = round->find("leader"); leader != round->end() && leader->is_number())
      leaders_.push_back({last_step_, leader->get<int64_t>()});
  }

  void add_pipeline(const Json& line) {
    const auto pipeline = line.find("pipeline");
    if (pipeline == line.end() || !pipeline->is_object()) return;
    add(*pipeline, "idle_share", "pipeline/idle_share");
    const auto boundaries = pipeline->find("boundaries");
    if (boundaries == pipeline->end() || !boundaries->is_array()) return;
    for (const Json& boundary : *boundaries)
      for (const char* way : {"forward", "backward"})
        for (const char* key : {"values", "payload_bytes"})
          if (const auto found = boundary.find(way); found != boundary.end())
            add(*found, key,
                fmt::format("boundary/{} after {}/{}", way, boundary.value("behind", "?"), key));
  }

  void add_events(const Json& line) {
    if (line.value("skipped", false)) {
      ++skipped_;
      const Json fault = line.value("fault", Json::object());
      add_event(fmt::format("skipped: {}, rank {}, {}", fault.value("what", "unknown reason"),
                            fault.value("rank", -1), fault.value("stream", "")));
    }
    for (const Json& one : line.value("left_out", Json::array()))
      ++left_out_[one.value("rank", -1)][one.value("why", "unknown reason")];
    for (const Json& rank : line.value("unchosen", Json::array()))
      ++left_out_[rank.get<int>()]["the rule's choice"];
    for (const Json& worker : line.value("lost", Json::array()))
      add_event(
          fmt::format("worker {} lost: {}", worker.value("rank", -1), worker.value("why", "")));
  }

  void add_event(std::string what) {
    if (events_.size() < kEvents)
      events_.push_back({{"step", last_step_}, {"what", std::move(what)}});
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

  StepGroups steps_;
  uint64_t last_step_ = 0;
  uint64_t skipped_ = 0;
  double seconds_ = 0;
  double sent_ = 0;  // bytes of rank 0 until the last step
  Json tests_ = Json::array();
  std::map<int, std::map<std::string, uint64_t>> left_out_;  // steps, by rank and reason
  Json events_ = Json::array();
  Json codecs_ = Json::array();   // tensors by codec, from a step on
  Json leaders_ = Json::array();  // [step, rank] for each global round that had one
};

Json settings_of_run(const Json& summary, const fs::path& recipe) {
  if (const auto found = summary.find("settings"); found != summary.end()) return *found;
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

double number(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string folder_name(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Json read_run(const fs::path& folder, size_t groups) {
  const Json summary = read_summary(folder / "summary.json");
  Json run = {{"name", folder_name(folder)},
              {"finished", summary.value("finished", Json()) == true},
              {"summary", Json::object()}};
  for (const auto& [key, value] : summary.items())
    if (value.is_primitive()) run["summary"][key] = value;
  run["settings"] = settings_of_run(summary, folder / "recipe.toml");
  MetricsReader metrics(groups);
  metrics.read(folder / kMetrics);
  metrics.write(run);
  return run;
}

}  // namespace thinwire::cli
