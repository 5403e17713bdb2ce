// Writes the signals of a step to a file, and reads them back.
// SPDX-License-Identifier: Apache-2.0
#include "train/signal_recorder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "thinwire/trainer.h"
#include "train/durable_file.h"
#include "train/safetensors.h"
#include "train/saved_names.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string file_name(uint64_t step) {
  const std::string digits = std::to_string(step);
  const std::string zeros(digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return std::string(kSignalsPrefix) + zeros + digits + std::string(kSignalsSuffix);
}

Json to_json(const StreamSpec& stream) {
  Json tensors = Json::array();
  for (const TensorSpec& tensor : stream.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"kind", std::string(to_string(tensor.kind))}});
  return {{"name", stream.name}, {"tensors", std::move(tensors)}};
}

TensorKind kind_from(const std::string& name) {
  for (const TensorKind kind :
       {TensorKind::kConvolution, TensorKind::kLinear, TensorKind::kRecurrent,
        TensorKind::kEmbedding, TensorKind::kBias, TensorKind::kNorm})
    if (name == to_string(kind)) return kind;
  return TensorKind::kOther;
}

StreamSpec stream_from(const Json& json) {
  StreamSpec stream{.name = json.at("name").get<std::string>(), .tensors = {}};
  for (const Json& tensor : json.at("tensors"))
    stream.tensors.push_back({.name = tensor.at("name").get<std::string>(),
                              .shape = tensor.at("shape").get<std::vector<uint64_t>>(),
                              .kind = kind_from(tensor.at("kind").get<std::string>())});
  return stream;
}

StateArray to_array(std::string name, std::span<const float> values) {
  return make_state(std::move(name), values, OnResize::kCopy);
}

RecordedStep read_step(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const TensorFile file = read_safetensors(path.string(), bytes).value();
  const auto corrupt = [&](const std::string& what) {
    return Error(ErrorCode::kCorrupt, path.string() + ": not a recorded step: " + what);
  };
  RecordedStep step;
  try {
    step.step = std::stoull(file.metadata.at("step"));
    for (const Json& json : Json::parse(file.metadata.at("streams")))
      step.signals.push_back({.stream = stream_from(json), .values = {}, .fresh = {}});
  } catch (const std::exception& error) {
    throw corrupt(error.what());
  }
  for (RecordedSignal& signal : step.signals) {
    const auto take = [&](const std::string& name, std::vector<float>& values) {
      const StateArray* array = find_state(file.arrays, name);
      // Shapes may say anything: what is there decides how much memory is taken.
      if (array != nullptr && array->data.size() / sizeof(float) != signal.stream.count())
        throw corrupt("'" + name + "' has another length than its tensors");
      if (array != nullptr) values.resize(array->data.size() / sizeof(float));
      if (const Status status = copy_state(file.arrays, name, values); !status)
        throw corrupt(status.message());
    };
    const std::string fresh = signal.stream.name + "/fresh";
    const bool has_fresh = find_state(file.arrays, fresh) != nullptr;
    take(signal.stream.name + "/values", signal.values);
    if (has_fresh) take(fresh, signal.fresh);
  }
  return step;
}

}  // namespace

SignalRecorder::SignalRecorder(fs::path folder, uint64_t every)
    : folder_(std::move(folder)), every_(every) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorCode::kIo, folder_.string() + ": cannot be made: " + error.message());
}

void SignalRecorder::observe(const StreamSpec& stream, const Signal& signal, const Call& call) {
  if (call.step % every_ != 0) return;
  step_ = call.step;
  streams_[stream.name] = stream;
  arrays_.push_back(to_array(stream.name + "/values", signal.values));
  if (!signal.fresh.empty() && signal.fresh.data() != signal.values.data())
    arrays_.push_back(to_array(stream.name + "/fresh", signal.fresh));
}

void SignalRecorder::end_step(bool skipped) {
  if (!skipped && !arrays_.empty()) {
    Json streams = Json::array();
    for (const auto& [name, stream] : streams_) streams.push_back(to_json(stream));
    const TensorFile file{
        .metadata = {{"step", std::to_string(step_)}, {"streams", streams.dump()}},
        .arrays = std::move(arrays_)};
    replace_durably(folder_ / file_name(step_), write_safetensors(file));
  }
  arrays_.clear();
  streams_.clear();
}

uint64_t read_recorded_steps(const std::string& folder,
                             const std::function<void(const RecordedStep&)>& each) {
  std::vector<fs::path> paths;
  std::error_code ignored;  // a folder that is not there has none
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_signals_name(name)) paths.push_back(entry.path());
  }
  if (paths.empty())
    throw Error(ErrorCode::kIo, folder + ": holds no recorded steps; a run with --set " +
                                    "run.record_every=N leaves them in its folder signals");
  std::sort(paths.begin(), paths.end());  // eight digits: in order of steps
  for (const fs::path& path : paths) each(read_step(path));
  return paths.size();
}

}  // namespace thinwire
