// Influence: the training samples to which a run's network owes its predictions, by TracInCP
// [Pruthi et al., NeurIPS 2020, arXiv 2002.08484]. docs/influence.md has the formula.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

enum class SamplePart : uint8_t { kTest, kHeldOut, kTraining };

std::string_view to_string(SamplePart part) noexcept;  // "test", "held-out", "training"

struct InfluenceRequest {
  std::string run = {};                 // a folder with checkpoints, or a checkpoint
  std::string data = {};                // folder with data sets; thinwire's own are always found
  SamplePart part = SamplePart::kTest;  // of the samples in `of`
  std::vector<uint64_t> of = {};        // whose proponents and opponents are wanted
  uint64_t checkpoints = 0;  // as many, at equal distances, the newest among them; 0: all
  uint64_t most = 10;        // samples in each list
  bool pictures = false;     // of the samples in the lists
  std::string scores = {};   // safetensors file for all values; empty: none
  std::function<void(const std::string& text)> note = {};  // one line before each checkpoint
};

// A sample as an image of bytes, row by row, with its channels innermost.
struct SamplePicture {
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t channels = 0;  // 1 or 3; 0: no picture
  std::vector<uint8_t> values = {};
};

struct InfluenceSample {
  uint64_t index = 0;
  double influence = 0;                    // of a sample in `of` or `ranking`: on itself
  int64_t label = 0;                       // that it has in the run
  std::optional<int64_t> true_label = {};  // where data.wrong_labels made that one wrong
  // By the newest checkpoint.
  int64_t predicted = 0;
  double probability = 0;  // of the label
  SamplePicture picture = {};
};

// Samples that make the loss of `sample` smaller when they are trained on, and those that make it
// larger, the strongest first. A sample is in no list of its own.
struct InfluenceOf {
  InfluenceSample sample;
  std::vector<InfluenceSample> proponents = {};
  std::vector<InfluenceSample> opponents = {};
};

struct InfluenceCheckpoint {
  std::string name;  // of its folder
  uint64_t step = 0;
  double learning_rate = 0;  // of the step that led to it
  bool small = false;        // its weights are those of a small checkpoint
};

// How many of the wrong labels that data.wrong_labels planted are among the training samples that
// come first in the ranking by self-influence.
struct WrongLabelsFound {
  struct Share {
    double looked_at = 0;  // share of the training samples
    double found = 0;      // share of the wrong labels
  };
  uint64_t planted = 0;
  std::vector<Share> shares = {};
};

struct InfluenceReport {
  std::string data = {};
  std::string model;
  SamplePart part = SamplePart::kTest;
  uint64_t training_samples = 0;
  std::vector<InfluenceCheckpoint> checkpoints = {};  // oldest first
  std::vector<InfluenceOf> of = {};
  // Of training samples by self-influence, the strongest first.
  std::vector<InfluenceSample> ranking = {};
  std::optional<WrongLabelsFound> wrong = {};
};

// Throws Error: kBadOption for an index or a number of checkpoints that the run does not have, with
// those that it has, and for `scores` over a file of a run (check_output); kUnsupported for a
// network that does not classify samples; kIo where there is no run, checkpoint or data, and those
// of damaged files, by name.
InfluenceReport measure_influence(const InfluenceRequest& request);

}  // namespace thinwire
