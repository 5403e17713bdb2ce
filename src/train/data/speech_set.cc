// SpeechSet: computes the features of recordings, and fetches them by id.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/speech_set.h"

#include <torch/torch.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "train/data/log_mel.h"
#include "train/data/recordings.h"
#include "train/data/sample_ids.h"
#include "train/data/wav_reader.h"

namespace thinwire {
namespace {

constexpr int kTestIndices = 5;

struct Utterance {
  RecordingName name;
  torch::Tensor features;
};

Utterances join(const std::vector<Utterance>& utterances, const std::string& path,
                const char* part) {
  if (utterances.empty()) throw Error(ErrorCode::kCorrupt, path + ": holds no " + part + " data");
  std::vector<torch::Tensor> features;
  std::vector<int64_t> labels;
  for (const Utterance& utterance : utterances) {
    features.push_back(utterance.features);
    labels.push_back(utterance.name.digit);
  }
  return {.features = torch::stack(features), .labels = torch::tensor(labels, torch::kLong)};
}

class SpeechSet final : public Dataset {
 public:
  SpeechSet(std::shared_ptr<const Utterances> utterances, uint64_t first, uint64_t count)
      : utterances_(std::move(utterances)), first_(first), count_(count) {}

  uint64_t size() const override { return count_; }

  Batch fetch(std::span<const uint64_t> ids, const FetchContext& /*context*/) const override {
    check_ids(ids, count_);
    torch::Tensor rows = torch::empty({static_cast<int64_t>(ids.size())}, torch::kLong);
    int64_t* row = rows.mutable_data_ptr<int64_t>();
    for (const uint64_t id : ids) *row++ = static_cast<int64_t>(first_ + id);
    return {.inputs = utterances_->features.index_select(0, rows),
            .targets = utterances_->labels.index_select(0, rows)};
  }

 private:
  std::shared_ptr<const Utterances> utterances_;
  uint64_t first_;
  uint64_t count_;
};

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

std::shared_ptr<const Dataset> make_speech_set(std::shared_ptr<const Utterances> utterances,
                                               uint64_t first, uint64_t count) {
  const auto all = static_cast<uint64_t>(utterances->labels.size(0));
  THINWIRE_CHECK(first <= all && count <= all - first, "speech set: not that many utterances");
  return std::make_shared<SpeechSet>(std::move(utterances), first, count);
}

}  // namespace thinwire
