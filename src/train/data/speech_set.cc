// Computes the features of recordings.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/speech_set.h"

#include <torch/torch.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "train/data/log_mel.h"
#include "train/data/recordings.h"
#include "train/data/wav_reader.h"

namespace thinwire {
namespace {

constexpr int kTestIndices = 5;

struct Utterance {
  RecordingName name;
  torch::Tensor features;
};

Rows join(const std::vector<Utterance>& utterances, const std::string& path, const char* part) {
  if (utterances.empty()) throw Error(ErrorCode::kCorrupt, path + ": holds no " + part + " data");
  std::vector<torch::Tensor> features;
  std::vector<int64_t> labels;
  for (const Utterance& utterance : utterances) {
    features.push_back(utterance.features);
    labels.push_back(utterance.name.digit);
  }
  return {.features = torch::stack(features), .labels = torch::tensor(labels, torch::kLong)};
}

}  // namespace

UtterancePair read_spoken_digits(const std::string& path) {
  const torch::NoGradGuard no_grad;
  const MelShape shape{.bands = kUtteranceBands};
  std::vector<Utterance> train;
  std::vector<Utterance> test;
  for (const Recording& recording : read_recordings(path)) {
    RecordingName name = parse_recording_name(recording.name);
    const std::vector<float> samples =
        read_wav(recording.file, shape.rate, path + ": " + recording.name);
    const torch::Tensor features =
        fit_utterance(log_mel(torch::tensor(samples), shape), kUtteranceFrames);
    (name.index < kTestIndices ? test : train).push_back({std::move(name), features});
  }
  const auto order = [](const Utterance& utterance) {
    return std::tie(utterance.name.index, utterance.name.digit, utterance.name.speaker);
  };
  std::ranges::sort(train, {}, order);
  std::ranges::sort(test, {}, order);
  return {.train = join(train, path, "training"), .test = join(test, path, "test")};
}

}  // namespace thinwire
