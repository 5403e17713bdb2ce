// MetricsFile and other files of a run's folder: JSON lines, the recipe, and the summary.
// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/machine.h"
#include "thinwire/version.h"
#include "train/checkpoint.h"
#include "train/durable_file.h"
#include "train/manifest.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

using Json = nlohmann::ordered_json;

Json kinds_json(const Kinds& kinds) {
  Json json = Json::object();
  for (const auto& [name, kind] : kinds)
    json[name] = {{"values", kind.values},
                  {"kept", kind.kept},
                  {"payload_bytes", kind.payload_bytes},
                  {"codec_ratio", kind.codec_ratio()}};
  return json;
}

Json stream_json(const StreamSpec& stream, const StreamCounters& counters) {
  return {{"stream", stream.name},
          {"values", counters.values},
          {"kept", counters.kept},
          {"target", counters.target},
          {"dense_bytes", 4 * counters.values},
          {"payload_bytes", counters.payload_bytes},
          {"frame_bytes", counters.frame_bytes},
          {"reduced", counters.reduced},
          {"dense_frames", counters.dense_frames},
          {"rest_norm", counters.rest_norm},
          {"gradient_norm", counters.gradient_norm}};
}

// Norms of all streams together.
void add_norms(Json& json, const StepReport& report) {
  double rest = 0, gradient = 0;
  for (const StreamCounters& stream : report.streams) {
    rest += stream.rest_norm * stream.rest_norm;
    gradient += stream.gradient_norm * stream.gradient_norm;
  }
  json["rest_norm"] = std::sqrt(rest);
  json["gradient_norm"] = std::sqrt(gradient);
}

// Of all streams that have a target.
void add_density(Json& json, const StepReport& report) {
  uint64_t kept = 0, target = 0;
  for (const StreamCounters& stream : report.streams) {
    if (stream.target > 0) kept += stream.kept;
    target += stream.target;
  }
  if (target > 0)
    json["kept_over_target"] = static_cast<double>(kept) / static_cast<double>(target);
}

void add_fault(Json& json, const StepReport& report) {
  json["skipped"] = report.skipped;
  if (report.skipped)
    json["fault"] = {{"what", to_string(report.fault.code)},
                     {"rank", report.fault.rank},
                     {"stream", report.fault.stream}};
}

void add_left_out(Json& json, const StepReport& report) {
  for (const LeftOut& left_out : report.left_out)
    json["left_out"].push_back({{"rank", left_out.rank}, {"why", to_string(left_out.why)}});
  if (!report.unchosen.empty()) json["unchosen"] = report.unchosen;
}

Json lost_json(const LostWorker& worker) {
  Json json = {{"rank", worker.rank}, {"why", worker.why}};
  if (worker.owed) json["owed"] = *worker.owed;
  return json;
}

Json direction_json(const PipelineReport::Direction& direction) {
  return {{"values", direction.values},
          {"payload_bytes", direction.payload_bytes},
          {"message_bytes", direction.message_bytes},
          {"full_samples", direction.full}};
}

// Tensors by their codec.
Json codecs_json(const std::vector<StreamSpec>& streams, const StepReport& report) {
  Json json = Json::object();
  for (size_t i = 0; i < report.streams.size(); ++i) {
    if (report.streams[i].codec.empty()) continue;
    Json& names = json[report.streams[i].codec];
    for (const TensorSpec& tensor : streams[i].tensors) names.push_back(tensor.name);
  }
  return json;
}

Json pipeline_json(const PipelineReport& report) {
  Json json = {{"idle_share", report.idle_share}, {"warming_up", report.warming_up}};
  if (report.penalty) json["penalty"] = *report.penalty;
  for (const PipelineReport::Boundary& boundary : report.boundaries)
    json["boundaries"].push_back({{"behind", boundary.name},
                                  {"forward", direction_json(boundary.forward)},
                                  {"backward", direction_json(boundary.backward)}});
  return json;
}

// The lines of the file about steps up to `last`.
std::string lines_up_to(const std::filesystem::path& path, uint64_t last) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_unsigned() &&
        json["step"].get<uint64_t>() <= last)
      kept += line + '\n';
  }
  return kept;
}

// All numbers of a line but steps and those in lists: "loss", "times/compute", "kinds/linear/kept".
void collect(const Json& json, const std::string& before, EventFile::Scalars& scalars) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_number() && key != "step") scalars.emplace_back(before + key, value.get<double>());
    if (value.is_object()) collect(value, before + key + '/', scalars);
  }
}

EventFile::Scalars scalars_of(const Json& json) {
  EventFile::Scalars scalars;
  collect(json, "", scalars);
  return scalars;
}

bool finished(const std::filesystem::path& summary) {
  std::ifstream file(summary);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("finished") && json["finished"] == true;
}

}  // namespace

void check_out(const std::filesystem::path& out, bool continuing) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) throw Error(ErrorCode::kIo, out.string() + ": cannot be made: " + error.message());
  // A run's files would take the place of the checkpoint's, which has some of the same names.
  if (is_checkpoint(out))
    throw Error(ErrorCode::kBadOption,
                out.string() + ": is a checkpoint; name another folder with --out");
  if (!continuing && !list_checkpoints(out).empty() && !finished(out / kSummaryName))
    throw Error(ErrorCode::kIo, out.string() + ": holds checkpoints of an unfinished run; resume " +
                                    "it, remove them, or choose another folder");
}

void clear_out(const std::filesystem::path& out, bool continuing) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A run's final weights would be read in the place of later checkpoints. Without a run's metrics
  // beside it, the file is somebody else's.
  if (fs::exists(out / kMetricsName, error) && !is_checkpoint(out))
    fs::remove(out / kModelName, error);
  if (!continuing)
    for (const fs::path& checkpoint : list_checkpoints(out)) fs::remove_all(checkpoint, error);
  // After the checkpoints, which it allows to remove. If it stayed, a run that is killed would look
  // finished, and the next one would remove its checkpoints.
  fs::remove(out / kSummaryName, error);
  fs::remove(out / kDecisionsName, error);
  for (const auto& rank : fs::directory_iterator(out / kRanksFolder, error))
    if (is_rank_figures(rank.path().filename().string()))  // ranks may be fewer than there were
      fs::remove(rank.path(), error);
  if (continuing) return;
  for (const auto& signal : fs::directory_iterator(out / kSignalsFolder, error))
    if (is_signals_name(signal.path().filename().string())) fs::remove(signal.path(), error);
  for (const auto& file : event_files(out)) fs::remove(file, error);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, uint64_t resumed_step,
                         bool with_streams, bool events)
    : path_(path), with_streams_(with_streams) {
  const std::string before = resumed_step == 0 ? "" : lines_up_to(path, resumed_step);
  replace_durably(path, std::as_bytes(std::span(before)));
  file_.open(path, std::ios::app);
  const std::filesystem::path folder = path.parent_path();
  if (events)
    events_.emplace(folder, resumed_step);
  else if (resumed_step > 0 && !event_files(folder).empty())
    EventFile(folder, resumed_step);  // says which of the earlier events do not count any more
  flush();
}

void MetricsFile::sync() {
  flush();
  sync_file(path_);
}

// In the first step of the file, too; of streams without codecs, never.
bool MetricsFile::new_codecs(const StepReport& report) {
  std::vector<std::string> codecs;
  for (const StreamCounters& stream : report.streams) codecs.push_back(stream.codec);
  if (codecs == codecs_ ||
      std::all_of(codecs.begin(), codecs.end(), std::mem_fn(&std::string::empty)))
    return false;
  codecs_ = std::move(codecs);
  return true;
}

void MetricsFile::step(const StepEvent& event, const StepTimes& times, const Kinds& kinds,
                       const std::vector<StreamSpec>& streams) {
  const StepReport& report = *event.exchange;
  Json json = {{"step", event.step},       {"epoch", event.epoch},
               {"loss", event.loss},       {"learning_rate", event.learning_rate},
               {"samples", event.samples}, {"seconds", event.seconds}};
  add_fault(json, report);
  add_left_out(json, report);
  json["dense_bytes"] = report.dense_bytes;
  json["sent_bytes"] = report.sent_bytes;
  json["received_bytes"] = report.received_bytes;
  if (report.inside_bytes > 0) {
    json["inside_bytes"] = report.inside_bytes;
    json["between_bytes"] = report.between_bytes;
  }
  add_norms(json, report);
  add_density(json, report);
  json["times"] = {{"fetch", times.fetch},        {"compute", times.compute},
                   {"update", times.update},      {"compress", report.compress_seconds},
                   {"wire", report.wire_seconds}, {"decompress", report.decompress_seconds},
                   {"wait", report.wait_seconds}};
  if (times.processor > 0) json["times"]["processor"] = times.processor;
  json["kinds"] = kinds_json(kinds);
  if (new_codecs(report)) json["codecs"] = codecs_json(streams, report);
  for (const AutoDecision& decision : event.decisions)
    json["decisions"].push_back({{"step", decision.step}, {"why", decision.why}});
  if (event.round != nullptr) json["round"] = Json::parse(to_json(*event.round));
  if (event.pipeline != nullptr) json["pipeline"] = pipeline_json(*event.pipeline);
  for (const LostWorker& worker : event.lost) json["lost"].push_back(lost_json(worker));
  if (!event.joined.empty()) json["joined"] = event.joined;
  if (event.ranks > 0) json["ranks"] = event.ranks;
  if (with_streams_)
    for (size_t i = 0; i < report.streams.size(); ++i)
      json["streams"].push_back(stream_json(streams[i], report.streams[i]));
  line(json.dump());
  if (events_) events_->add(event.step, scalars_of(json));
  if (!at_once_ && event.seconds < flushed_at_ + 1) return;
  flushed_at_ = event.seconds;
  flush();
}

void MetricsFile::evaluation(const EvaluationEvent& event) {
  Json json = {{"step", event.step},
               {"epoch", event.epoch},
               {"test_loss", event.loss},
               {"test_error", event.error},
               {"test_samples", event.samples}};
  const auto add = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  add("hold_out_error", event.hold_out_error);
  add("round", event.round);
  add("spread", event.spread);
  add("leader", event.leader);
  add("leader_error", event.leader_error);
  add("leader_hold_out_error", event.leader_hold_out_error);
  add("compressed_test_loss", event.compressed_loss);
  add("compressed_test_error", event.compressed_error);
  add("compressed_hold_out_error", event.compressed_hold_out_error);
  line(json.dump());
  if (events_) events_->add(event.step, scalars_of(json));
  flush();
}

void MetricsFile::line(const std::string& json) {
  file_ << json << '\n';
  if (!file_) throw Error(ErrorCode::kIo, path_.string() + ": cannot be written");
}

void MetricsFile::flush() {
  if (events_) events_->flush();
  file_.flush();
  if (!file_) throw Error(ErrorCode::kIo, path_.string() + ": cannot be written");
}

namespace {

Json flush_json(const FlushReport& flush) {
  Json json = {{"applied", flush.applied},
               {"learning_rate", flush.learning_rate},
               {"owed_norm", flush.owed_norm},
               {"gradient_norm", flush.gradient_norm},
               {"delivered_norm", flush.delivered_norm}};
  const auto add = [&](const FlushReport::Test& test, const std::string& when) {
    json["test_error_" + when] = test.error;
    json["test_loss_" + when] = test.loss;
    if (test.hold_out_error) json["hold_out_error_" + when] = *test.hold_out_error;
  };
  add(flush.before, "before");
  add(flush.after, "after");
  return json;
}

}  // namespace

void write_summary(const std::filesystem::path& path, const RunSummary& summary,
                   const RunTotals& totals, const Recipe& recipe) {
  Json json = {{"recipe", summary.recipe},
               {"world_size", summary.world_size},
               {"codec", summary.codec},
               {"steps", summary.steps},
               {"samples", summary.samples},
               {"finished", summary.finished},
               {"final_test_error", summary.final_test_error},
               {"best_test_error", summary.best_test_error},
               {"final_test_loss", summary.final_test_loss}};
  if (summary.final_hold_out_error) json["final_hold_out_error"] = *summary.final_hold_out_error;
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  add("final_compressed_test_error", summary.final_compressed_test_error);
  add("final_compressed_test_loss", summary.final_compressed_test_loss);
  add("final_compressed_hold_out_error", summary.final_compressed_hold_out_error);
  json["dense_bytes_per_step"] = summary.dense_bytes_per_step;
  json["sent_bytes_per_step"] = summary.sent_bytes_per_step;
  json["peak_sent_bytes"] = summary.peak_sent_bytes;
  if (summary.inside_bytes_per_step > 0) {
    json["inside_bytes_per_step"] = summary.inside_bytes_per_step;
    json["between_bytes_per_step"] = summary.between_bytes_per_step;
  }
  json["codec_ratio"] = summary.codec_ratio;
  json["wire_ratio"] = summary.wire_ratio;
  json["achieved_over_target"] = summary.achieved_over_target;
  json["seconds"] = summary.seconds;
  json["skipped_steps"] = summary.skipped_steps;
  if (summary.flush) json["flush"] = flush_json(*summary.flush);
  if (!summary.lost_workers.empty()) json["lost_workers"] = summary.lost_workers;
  if (!summary.joined_workers.empty()) json["joined_workers"] = summary.joined_workers;
  if (summary.lost_debt > 0) json["lost_debt"] = summary.lost_debt;
  json["weights_xxh3"] = hex(summary.weights_xxh3);
  json["kinds"] = kinds_json(totals.kinds);
  json["totals"] = Json::parse(totals.to_json());
  json["totals"].erase("kinds");
  json["processor"] = processor_model();
  json["cores"] = available_cores();
  json["thinwire"] = THINWIRE_VERSION;
  Json& settings = json["settings"] = Json::object();
  for (const OptionInfo& row : recipe_keys())
    settings[std::string(row.name)] = recipe.options.canonical(row.name);

  const std::string text = json.dump(2) + '\n';
  replace_durably(path, std::as_bytes(std::span(text)));
}

}  // namespace thinwire
